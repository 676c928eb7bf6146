package gatetest

// Behind proxies.

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// A proxy that connects by a real unix socket has no address: it is trusted if that was said, and its clients
// are told apart by the header.
func testUnixSocket(t *testing.T, adapters []Adapter) {
	nginx := keyfuncs.Func(keyfuncs.ForwardedIP(keyfuncs.UnixSocket))
	edge := keyfuncs.Func(keyfuncs.TrustedHeaderIP("X-Real-IP", keyfuncs.UnixSocket))
	for _, c := range []struct {
		name   string
		user   keyfuncs.Func
		header []string // name and value in turns, of one request after the other
		want   []int
		bound  string // the file that the peer's end of the socket is bound to
	}{
		{"trusted", nginx, []string{
			"X-Forwarded-For", "203.0.113.9", "X-Forwarded-For", "203.0.113.9:51234", "X-Forwarded-For", "6.6.6.6, 203.0.113.10",
			"X-Forwarded-For", "unix:", "", "",
		}, []int{200, 429, 200, 400, 400}, ""},
		{"trusted with its own header", edge, []string{"X-Real-IP", "203.0.113.9", "X-Real-IP", "203.0.113.9", "", ""}, []int{200, 429, 400}, ""},
		{"trusted for another header", nginx, []string{"X-Real-IP", "203.0.113.9"}, []int{400}, ""},
		{"not trusted", keyfuncs.Func(keyfuncs.ForwardedIP(netip.MustParsePrefix("127.0.0.1/32"))), []string{"X-Forwarded-For", "203.0.113.9"}, []int{400}, ""},
		{"by its address", keyfuncs.RemoteIP, []string{"X-Forwarded-For", "203.0.113.9"}, []int{400}, ""},
		{"not trusted by the name of a file", keyfuncs.Func(keyfuncs.ForwardedIP(netip.MustParsePrefix("10.0.0.1/32"))), []string{"X-Forwarded-For", "203.0.113.9"}, []int{400}, "10.0.0.1:1000"},
		{"nor for its own header", keyfuncs.Func(keyfuncs.TrustedHeaderIP("X-Real-IP", netip.MustParsePrefix("10.0.0.1/32"))), []string{"X-Real-IP", "203.0.113.9"}, []int{400}, "10.0.0.1:1000"},
		{"nor an address", keyfuncs.RemoteIP, []string{"", ""}, []int{400}, "10.0.0.1:1000"},
		{"trusted whatever its file", nginx, []string{"X-Forwarded-For", "203.0.113.9"}, []int{200}, "10.0.0.1:1000"},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				limiter := One(memory())
				dir, err := os.MkdirTemp("", "") // t.TempDir is too long for the path of a socket
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				t.Chdir(dir)
				socket := filepath.Join(dir, "app.sock")
				l, err := net.Listen("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				s := &httptest.Server{Listener: l, Config: &http.Server{
					Handler: ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: limiter, User: c.user}}}}}),
				}}
				s.Start()
				defer s.Close()
				client := &http.Client{Transport: &http.Transport{
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						d := new(net.Dialer)
						if c.bound != "" {
							d.LocalAddr = &net.UnixAddr{Name: c.bound, Net: "unix"}
						}
						return d.DialContext(ctx, "unix", socket)
					},
				}}
				defer client.CloseIdleConnections()
				for i, want := range c.want {
					r, err := http.NewRequestWithContext(t.Context(), "POST", "http://app/replies/7", nil)
					if err != nil {
						t.Fatal(err)
					}
					if name := c.header[2*i]; name != "" {
						r.Header.Set(name, c.header[2*i+1])
					}
					resp, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if resp.StatusCode != want {
						t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
					}
				}
			})
		}
	}
}
