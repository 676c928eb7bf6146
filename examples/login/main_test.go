package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core/memorystore"
)

func init() { gin.SetMode(gin.ReleaseMode) }

const form, jsonType = "application/x-www-form-urlencoded", "application/json"

// each runs a test with net/http and with Gin, on a clock of its own. Passwords are checked by right, and the test
// counts how often. The accounts are alice and user0 to user199.
func each(t *testing.T, o *memorystore.Options, right func(ctx context.Context, a *account, password string) (bool, error), test func(t *testing.T, h http.Handler, checks *atomic.Int64)) {
	for name, routes := range map[string]func(*service) http.Handler{"net/http": (*service).routes, "Gin": (*service).ginRoutes} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				users := accounts{"alice": &account{id: "alice"}}
				for i := range 200 {
					id := fmt.Sprint("user", i)
					users[id] = &account{id: id}
				}
				var checks atomic.Int64
				s := &service{users, newLimits(memorystore.New(o)), func(ctx context.Context, a *account, password string) (bool, error) {
					checks.Add(1)
					return right(ctx, a, password)
				}}
				test(t, routes(s), &checks)
			})
		})
	}
}

// known is right for the password "secret".
func known(_ context.Context, a *account, password string) (bool, error) {
	return a != nil && password == "secret", nil
}

func post(h http.Handler, from, kind, body string) int {
	return send(context.Background(), h, from, kind, strings.NewReader(body))
}

func send(ctx context.Context, h http.Handler, from, kind string, body io.Reader) int {
	r := httptest.NewRequestWithContext(ctx, "POST", "/login", body)
	r.RemoteAddr = from
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

const office = "203.0.113.9:4711"

func login(h http.Handler, from, name, password string) int {
	return post(h, from, form, "name="+name+"&password="+password)
}

func TestFiveFailuresLockANameForAnAddress(t *testing.T) {
	each(t, nil, known, func(t *testing.T, h http.Handler, _ *atomic.Int64) {
		for range 100 {
			if code := login(h, office, "alice", "secret"); code != http.StatusNoContent {
				t.Fatalf("a right password: %d", code)
			}
		}
		for i, body := range []string{`{"name":"alice","password":"a"}`, `{"name":" Alice","password":"b"}`, `{"name":"ALICE "}`} {
			if code := post(h, office, jsonType, body); code != http.StatusUnauthorized {
				t.Errorf("guess %d: %d", i, code)
			}
		}
		for range 2 {
			if code := login(h, office, "alice", "guess"); code != http.StatusUnauthorized {
				t.Errorf("a guess: %d", code)
			}
		}
		if code := login(h, office, "alice", "secret"); code != http.StatusTooManyRequests {
			t.Errorf("after five failures: %d", code)
		}
		for _, tt := range [][2]string{{office, "user1"}, {"203.0.113.10:1", "alice"}} {
			if code := login(h, tt[0], tt[1], "secret"); code != http.StatusNoContent {
				t.Errorf("%s: %d", tt, code)
			}
		}
		time.Sleep(15 * time.Minute)
		if code := login(h, office, "alice", "secret"); code != http.StatusNoContent {
			t.Errorf("after the lock: %d", code)
		}
	})
}

// All 200 users of an office come at the same moment, and each check takes a while: they wait for one another.
func TestAnOfficeLogsInTogether(t *testing.T) {
	slow := func(ctx context.Context, a *account, password string) (bool, error) {
		time.Sleep(500 * time.Millisecond)
		return known(ctx, a, password)
	}
	each(t, nil, slow, func(t *testing.T, h http.Handler, _ *atomic.Int64) {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if code := login(h, office, fmt.Sprint("user", i), "secret"); code != http.StatusNoContent {
					t.Errorf("user %d: %d", i, code)
				}
			})
		}
		wg.Wait()
	})
}

// A client hangs up while its guess is checked, and the check fails because of that, or goes on. Nothing is gained:
// of 100 guesses, one after the other or at once, fewer than twice five are checked.
func TestHangingUpGainsNothing(t *testing.T) {
	for name, right := range map[string]func(ctx context.Context, a *account, password string) (bool, error){
		"the check ends with an error": func(ctx context.Context, _ *account, _ string) (bool, error) {
			<-ctx.Done()
			return false, errors.New("the query was canceled")
		},
		"the check goes on": func(context.Context, *account, string) (bool, error) {
			time.Sleep(time.Second)
			return false, nil
		},
	} {
		for way, together := range map[string]bool{"in turn": false, "at once": true} {
			for outside, wrap := range map[string]func(http.Handler) http.Handler{
				"":                      func(h http.Handler) http.Handler { return h },
				", in a TimeoutHandler": func(h http.Handler) http.Handler { return http.TimeoutHandler(h, 20*time.Second, "") },
			} {
				t.Run(name+", "+way+outside, func(t *testing.T) {
					each(t, nil, right, func(t *testing.T, h http.Handler, checks *atomic.Int64) {
						h = wrap(h)
						var wg sync.WaitGroup
						for range 100 {
							ctx, hangUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
							wg.Go(func() {
								send(ctx, h, office, form, strings.NewReader("name=alice&password=guess"))
								hangUp()
							})
							if !together {
								wg.Wait()
								time.Sleep(time.Second)
							}
						}
						wg.Wait()
						time.Sleep(30 * time.Second) // a TimeoutHandler leaves its handler behind
						if n := checks.Load(); n < 5 || n > 9 {
							t.Errorf("%d guesses were checked", n)
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						if code := send(ctx, h, office, form, strings.NewReader("name=alice&password=secret")); code != http.StatusTooManyRequests {
							t.Errorf("afterwards: %d", code)
						}
					})
				})
			}
		}
	}
}

func TestAPreflightIsNoLogin(t *testing.T) {
	each(t, nil, known, func(t *testing.T, h http.Handler, checks *atomic.Int64) {
		for range 100 {
			r := httptest.NewRequest("OPTIONS", "/login", strings.NewReader("name=alice&password=guess"))
			r.Header.Set("Origin", "https://example.com")
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Authorization", "Basic YWxpY2U6Z3Vlc3M=")
			r.Header.Set("Content-Type", form)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code < 400 {
				t.Fatalf("%d", w.Code)
			}
		}
		if n := checks.Load(); n > 0 {
			t.Errorf("%d guesses were checked", n)
		}
	})
}

// endless counts what is read of a body.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += int64(len(p)); e.read > 9<<20 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What is read of a body is bounded before anything else looks at it, for a locked name too. Nothing is written to
// the disk.
func TestLargeBodiesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	each(t, nil, known, func(t *testing.T, h http.Handler, checks *atomic.Int64) {
		for range 6 {
			login(h, office, "alice", "guess")
		}
		before := checks.Load()
		for kind, tt := range map[string]struct {
			start string
			want  int
		}{
			form:                              {"name=alice&password=", http.StatusRequestEntityTooLarge},
			jsonType:                          {`{"name":"alice","password":"`, http.StatusRequestEntityTooLarge},
			"multipart/form-data; boundary=b": {"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n", http.StatusUnsupportedMediaType},
			"":                                {"name=alice", http.StatusUnsupportedMediaType},
			"text/plain":                      {"name=alice", http.StatusUnsupportedMediaType},
		} {
			rest := new(endless)
			if code := send(t.Context(), h, office, kind, io.MultiReader(strings.NewReader(tt.start), rest)); code != tt.want {
				t.Errorf("%q: %d, want %d", kind, code, tt.want)
			}
			if rest.read > 64<<10 {
				t.Errorf("%q: %d bytes are read", kind, rest.read)
			}
		}
		for _, bad := range []string{"", "{", `{"name":1}`, `{"name":""}`, `{"name":"alice"} x`} {
			if code := post(h, office, jsonType, bad); code != http.StatusBadRequest {
				t.Errorf("%s: %d", bad, code)
			}
		}
		if n := checks.Load(); n != before {
			t.Errorf("%d passwords were checked", n-before)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%v, %v", files, err)
		}
	})
}

// An attacker with a /48 sends six wrong passwords for each of many names that it made up, each from another
// address. It does not fill the store, and no right user is refused.
func TestMadeUpNamesLockNobodyOut(t *testing.T) {
	const names, maxKeys = 2400, 4096 // the keys of a locked name would stay, and are two
	each(t, &memorystore.Options{MaxKeys: maxKeys}, known, func(t *testing.T, h http.Handler, _ *atomic.Int64) {
		for i := range names {
			for range 6 {
				login(h, fmt.Sprintf("[2001:db8:1:%x::1]:1", i), fmt.Sprint("made-up", i), "guess")
			}
		}
		for i := range 100 {
			if code := login(h, fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprint("user", i), "secret"); code != http.StatusNoContent {
				t.Fatalf("user %d: %d", i, code)
			}
		}
	})
}

// From one address, at most 20 wrong passwords are checked in 15 minutes, whatever the names are.
func TestAnAddressHasTwentyFailures(t *testing.T) {
	each(t, nil, known, func(t *testing.T, h http.Handler, checks *atomic.Int64) {
		for i := range 200 {
			login(h, office, fmt.Sprint([]string{"user", "made-up"}[i%2], i), "guess")
		}
		if n := checks.Load(); n != 20 {
			t.Errorf("%d guesses were checked", n)
		}
	})
}

func TestRightPasswords(t *testing.T) {
	iterations = 10
	a := newAccount("alice", "secret")
	for _, tt := range []struct {
		a        *account
		password string
		want     bool
	}{{a, "secret", true}, {a, "guess", false}, {a, "", false}, {nil, "secret", false}, {nil, "", false}} {
		if got, err := right(t.Context(), tt.a, tt.password); got != tt.want || err != nil {
			t.Errorf("%v: %v, %v", tt, got, err)
		}
	}
	if s := (accounts{"alice": a}); s.find(" ALICE ") != a || s.find("bob") != nil {
		t.Error("the wrong account")
	}
}
