package main

import (
	"testing"

	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func TestFiveRepliesPassAndTheSixthIsRefused(t *testing.T) {
	gatetest.WantFiveReplies(t, routes(), "/posts/1/replies")
}
