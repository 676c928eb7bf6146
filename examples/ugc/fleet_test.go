package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// reply sends a reply and returns its status and how long it took.
func (p *program) reply(user string) (int, time.Duration) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/posts/1/replies", strings.NewReader(`{"text":"hello"}`))
	if err != nil {
		p.t.Error(err)
		return 0, 0
	}
	req.Header.Set(userHeader, user)
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Error(err)
		return 0, 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode, time.Since(start)
}

// eight sends eight replies of one user, to two servers in turn, and returns how
// many passed.
func eight(user string, servers ...*program) (passed int) {
	for i := range 8 {
		if status, _ := servers[i%len(servers)].reply(user); status == http.StatusCreated {
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

	// Redis dies under load: nobody gets an error, nobody waits long.
	var wg sync.WaitGroup
	killed := make(chan struct{})
	for c := range 8 {
		wg.Go(func() {
			for i := range 60 {
				if i == 20 && c == 0 {
					server.Kill()
					close(killed)
				}
				status, took := []*program{a, b}[c%2].reply(fmt.Sprint("client", c))
				if status != http.StatusCreated && status != http.StatusTooManyRequests {
					t.Errorf("status %d", status)
				}
				if took > 500*time.Millisecond { // 50 of them Redis's, the rest a busy machine's
					t.Errorf("a reply took %s", took)
				}
			}
		})
	}
	wg.Wait()
	<-killed

	// Without it each server counts for itself.
	for _, p := range []*program{a, b} {
		if n := eight("xiaoming", p); n != 5 {
			t.Errorf("%d of eight replies to one server passed without Redis, not five", n)
		}
	}

	// When it is back it is used again.
	server.Run()
	shared := false
	for i, end := 0, time.Now().Add(10*time.Second); !shared && time.Now().Before(end); i++ {
		shared = eight(fmt.Sprint("afterwards", i), a, b) == 5
		time.Sleep(50 * time.Millisecond) // or the post would soon be full
	}
	if !shared {
		t.Error("Redis is back and not used")
	}
	// Five seconds without a failure, and they say so; a busy machine may have one.
	say := func() bool {
		return strings.Contains(a.logs.String(), "answers again") && strings.Contains(b.logs.String(), "answers again")
	}
	for i, end := 0, time.Now().Add(30*time.Second); !say() && time.Now().Before(end); i++ {
		eight(fmt.Sprint("calm", i), a, b)
		time.Sleep(50 * time.Millisecond)
	}
	for _, p := range []*program{a, b} {
		p.terminate()
		p.ends()
		for _, once := range []string{"store fails", "answers again"} {
			if n := strings.Count(p.logs.String(), once); n != 1 {
				t.Errorf("the log says %q %d times:\n%.2000s", once, n, &p.logs)
			}
		}
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
