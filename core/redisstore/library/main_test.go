package main

import (
	"io"
	"os"
	"testing"

	"github.com/tailcut/tailcut/core/redisstore"
)

// The library, and nothing else, is on the standard output.
func TestMainPrintsTheLibrary(t *testing.T) {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	printed := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		printed <- string(text)
	}()
	main()
	_ = w.Close()
	if got := <-printed; got != redisstore.Library() {
		t.Errorf("%d bytes of %d", len(got), len(redisstore.Library()))
	}
}
