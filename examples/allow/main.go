// Command allow asks whether alice may post.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func main() {
	posts := core.Must(core.New(memorystore.New(nil),
		core.SlidingWindow(5, time.Minute),
		core.FixedWindow(100, 24*time.Hour)))
	d, err := posts.Allow(context.Background(), "alice", "post")
	fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err) // true 4 0s <nil>
}
