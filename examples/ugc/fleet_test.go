package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// reply sends a reply and returns its status.
func (p *program) reply(user string) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/posts/1/replies", strings.NewReader(`{"text":"hello"}`))
	if err != nil {
		p.t.Error(err)
		return 0
	}
	req.Header.Set(userHeader, user)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// eight sends eight replies of one user, to two servers in turn, and returns how
// many passed.
func eight(user string, servers ...*program) (passed int) {
	for i := range 8 {
		if servers[i%len(servers)].reply(user) == http.StatusCreated {
			passed++
		}
	}
	return passed
}

func TestTwoServersShareTheirLimits(t *testing.T) {
	server := redistest.Start(t)
	bin := build(t)
	a, b := start(t, bin, "-redis", server.Addr), start(t, bin, "-redis", server.Addr, "-framework", "gin")

	// On a busy machine the first calls may find Redis too slow, and fall back.
	for i, n := 0, 0; n != 5; i++ {
		if n = eight(fmt.Sprint("alice", i), a, b); n < 5 || n > 5 && i == 5 {
			t.Fatalf("%d of eight replies to both passed, not five", n)
		}
	}
	for _, p := range []*program{a, b} {
		p.terminate()
		p.ends()
	}
}

func TestAServerStartsWithoutRedis(t *testing.T) {
	p := start(t, build(t), "-redis", "127.0.0.1:1") // nobody listens there
	if n := eight("alice", p); n != 5 {
		t.Errorf("%d of eight replies passed, not five", n)
	}
	p.terminate()
	p.ends()
	if n := strings.Count(p.logs.String(), "store fails"); n != 1 {
		t.Errorf("the log says %d times that the store fails:\n%s", n, &p.logs)
	}
}
