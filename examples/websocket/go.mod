module github.com/tailcut/tailcut/examples/websocket

go 1.26.0

replace github.com/tailcut/tailcut => ../..

require (
	github.com/coder/websocket v1.8.15
	github.com/tailcut/tailcut v0.0.0
)
