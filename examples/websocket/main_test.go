package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// dialer returns a function that opens a socket for a user, and returns the status of the response.
func dialer(t *testing.T, store core.Store) func(user string) (*websocket.Conn, int) {
	srv := httptest.NewServer(routes(store))
	t.Cleanup(srv.Close)
	return func(user string) (*websocket.Conn, int) {
		t.Helper()
		header := http.Header{}
		if user != "" {
			header.Set("X-User-ID", user)
		}
		conn, resp, err := websocket.Dial(t.Context(), strings.Replace(srv.URL, "http", "ws", 1)+"/echo", &websocket.DialOptions{HTTPHeader: header})
		if err != nil && resp == nil {
			t.Fatal(err)
		}
		if err == nil {
			t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return conn, resp.StatusCode
	}
}

func echoed(t *testing.T, conn *websocket.Conn, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.Read(ctx); err != nil || string(got) != message {
		t.Fatalf("%q, %v; want %q", got, err, message)
	}
}

// The handlers of all sockets have returned. Nevertheless no more than two are open at a time.
func TestAUserHasTwoSockets(t *testing.T) {
	store := memorystore.New(nil)
	dial := dialer(t, store)
	var open []*websocket.Conn
	for i := range 10 {
		conn, status := dial("alice")
		if want := i < 2; (status == http.StatusSwitchingProtocols) != want || !want && status != http.StatusTooManyRequests {
			t.Errorf("socket %d: %d", i+1, status)
		} else if want {
			open = append(open, conn)
		}
	}
	for _, conn := range open {
		echoed(t, conn, "Hello")
	}
	if _, status := dial("bob"); status != http.StatusSwitchingProtocols {
		t.Errorf("another user: %d", status)
	}
	if _, status := dial(""); status != http.StatusBadRequest {
		t.Errorf("nobody: %d", status)
	}
	_ = open[0].Close(websocket.StatusNormalClosure, "")
	_ = open[1].CloseNow() // without a word
	sockets := core.Must(core.New(store, core.InFlight(2)))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if d, err := sockets.Peek(t.Context(), "alice", "socket"); err != nil || d.Remaining == 2 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d slots are free", d.Remaining)
		}
	}
	if _, status := dial("alice"); status != http.StatusSwitchingProtocols {
		t.Errorf("after both were closed: %d", status)
	}
}

// A request that is no upgrade leaves no slot taken.
func TestARequestWithoutAnUpgrade(t *testing.T) {
	h := routes(memorystore.New(nil))
	for range 5 {
		r := httptest.NewRequest("GET", "/echo", nil)
		r.Header.Set("X-User-ID", "alice")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUpgradeRequired {
			t.Errorf("%d", w.Code)
		}
	}
}

// Five messages pass at once, and then five a second, over both sockets of a user together.
func TestMessagesASecond(t *testing.T) {
	dial := dialer(t, memorystore.New(nil))
	one, _ := dial("alice")
	two, _ := dial("alice")
	begun := time.Now()
	for range 5 {
		echoed(t, one, "x")
		echoed(t, two, "x")
	}
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("ten messages take %s", took)
	}
}
