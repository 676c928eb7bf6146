module github.com/tailcut/tailcut/examples/replay

go 1.26.0

replace github.com/tailcut/tailcut => ../..

require (
	github.com/tailcut/tailcut v0.0.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)
