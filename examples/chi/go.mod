module github.com/tailcut/tailcut/examples/chi

go 1.26.0

replace github.com/tailcut/tailcut => ../..

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/tailcut/tailcut v0.0.0
)
