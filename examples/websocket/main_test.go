package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// dialer returns a function that opens a socket for a user, and returns the status of the response.
func dialer(t *testing.T, store core.Store) func(user string) (*websocket.Conn, int) {
	return dialerOf(t, &server{stop: t.Context()}, store)
}

func dialerOf(t *testing.T, s *server, store core.Store) func(user string) (*websocket.Conn, int) {
	srv := httptest.NewServer(s.routes(store))
	t.Cleanup(srv.Close)
	return func(user string) (*websocket.Conn, int) {
		t.Helper()
		header := http.Header{}
		if user != "" {
			header.Set("Authorization", "Bearer of-"+user)
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
	if _, status := dial(""); status != http.StatusUnauthorized {
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
	h := (&server{stop: t.Context()}).routes(memorystore.New(nil))
	for range 5 {
		r := httptest.NewRequest("GET", "/echo", nil)
		r.Header.Set("Authorization", "Bearer of-alice")
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

// A pipe is a listener of one connection, which is in memory so that time can pass as it is read.
type pipe struct {
	net.Listener
	conns chan net.Conn
}

func (p pipe) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipe) Close() error { return nil }

func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// Frames that are no message are charged too, by their bytes.
func TestNoFrameIsFree(t *testing.T) {
	const frames, bytes = 50_000, 6 // of each
	for name, c := range map[string]struct{ first, repeated string }{
		"pings":           {"", "\x89\x80mask"},
		"pongs":           {"", "\x8a\x80mask"},
		"empty fragments": {"\x01\x80mask", "\x00\x80mask"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop, cancel := context.WithCancel(t.Context())
				s := &server{stop: stop}
				p := pipe{conns: make(chan net.Conn, 1)}
				srv := &http.Server{Handler: s.routes(memorystore.New(nil))}
				go func() { _ = srv.Serve(p) }()
				conn, served := net.Pipe()
				p.conns <- served
				_, err := io.WriteString(conn, "GET /echo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
				if err != nil {
					t.Fatal(err)
				}
				answers := bufio.NewReader(conn)
				if status, err := answers.ReadString('\n'); err != nil || !strings.Contains(status, "101") {
					t.Fatalf("%q, %v", status, err)
				}
				go func() { _, _ = io.Copy(io.Discard, answers) }()

				begun := time.Now()
				if _, err := io.WriteString(conn, c.first); err != nil {
					t.Fatal(err)
				}
				block := strings.Repeat(c.repeated, 100)
				for range frames / 100 {
					if _, err := io.WriteString(conn, block); err != nil {
						t.Fatal(err)
					}
				}
				if took, least := time.Since(begun), time.Second*(frames*bytes-2*quota)/quota; took < least {
					t.Errorf("%d frames take %s, want at least %s", frames, took, least)
				}
				_ = conn.Close()
				close(p.conns)
				_ = srv.Close()
				cancel()
				s.open.Wait()
			})
		})
	}
}

// A server that stops tells its clients, and leaves no slot taken.
func TestASlotIsFreeAfterACleanStop(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	s, store := &server{stop: stop}, memorystore.New(nil)
	dial := dialerOf(t, s, store)
	closed := make(chan error)
	for range 2 {
		conn, _ := dial("alice")
		echoed(t, conn, "Hello")
		go func() {
			_, _, err := conn.Read(context.WithoutCancel(t.Context()))
			closed <- err
		}()
	}
	cancel()
	s.open.Wait()
	sockets := core.Must(core.New(store, core.InFlight(2)))
	if d, err := sockets.Peek(context.Background(), "alice", "socket"); err != nil || d.Remaining != 2 {
		t.Errorf("%d slots are free, %v", d.Remaining, err)
	}
	for range 2 {
		if err := <-closed; websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Error(err)
		}
	}
}
