module github.com/tailcut/tailcut/examples/grpc

go 1.26.0

replace github.com/tailcut/tailcut => ../..

require (
	github.com/tailcut/tailcut v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
