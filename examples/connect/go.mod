module github.com/tailcut/tailcut/examples/connect

go 1.26.0

replace github.com/tailcut/tailcut => ../..

require (
	connectrpc.com/connect/v2 v2.0.2
	github.com/tailcut/tailcut v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/protobuf v1.36.12
)
