package gate_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	echov5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A limit that is mounted before the login never sees a user, and says so.
func TestNeverAUser(t *testing.T) {
	type userKey struct{}
	login := func(user string) *http.Request {
		r := httptest.NewRequest("POST", "/replies/1", nil)
		return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
	}
	visitor, member, bot := login(""), login("alice"), login("bot")
	user := keyfuncs.ContextValue(userKey{})
	orBad := func(r *http.Request) (string, error) {
		if key, err := user(r); key != "bot" {
			return key, err
		}
		return "", keyfuncs.ErrBadKey
	}
	warned := []string{"WARN adapter: the first 100 requests had no user and were answered 400; is the limit mounted before the login?" +
		" | never-a-user | reply | keyfuncs: the request has no key: the context value gate_test.userKey{} is missing or empty"}
	many := func(n int, r *http.Request) []*http.Request { return slices.Repeat([]*http.Request{r}, n) }
	for _, tt := range []struct {
		name     string
		requests []*http.Request
		want     []string
	}{
		{"a few visitors do not matter", many(99, visitor), nil},
		{"a hundred are logged once", many(500, visitor), warned},
		{"one user before them is enough", append(many(1, member), many(500, visitor)...), nil},
		{"one user among them is enough", slices.Concat(many(99, visitor), many(1, member), many(500, visitor)), nil},
		{"a bad key is not a missing key", many(500, bot), nil},
	} {
		for _, ad := range adapters {
			t.Run(tt.name+"/"+ad.Name, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), core.FixedWindow(1000, 24*time.Hour)))
				log := gatetest.Capture(t)
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: limiter, User: orBad}}}}}.Filled())
				for _, r := range tt.requests {
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
				if got := log.Take(pkg(ad.Name)); !slices.Equal(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// An action that relies on the user does not turn the answer into another, nor keep the warning
// back.
func TestNeverAUserAndItsActionPanics(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			log := gatetest.Capture(t)
			action := func(*http.Request) (string, error) { panic("no user") }
			h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: five(memory()), Action: action}}}}}.Filled())
			for i := range 100 {
				if w := gatetest.Do(h, "POST", "/replies/7"); w.Code != 400 {
					t.Errorf("request %d: %d", i+1, w.Code)
				}
			}
			want := []string{"WARN adapter: the first 100 requests had no user and were answered 400; is the limit mounted before the login?" +
				" | never-a-user |  | keyfuncs: the request has no key: the header X-User-Id is missing or empty"}
			if got := log.Take(pkg(ad.Name)); !slices.Equal(got, want) {
				t.Errorf("said %q, want %q", got, want)
			}
		})
	}
}

// The error of a framework's Value names the value that is missing.
func TestValueNamesItsKey(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	_, err := ginlimit.Value("user")(&gin.Context{Request: r})
	if want := `keyfuncs: the request has no key: the Gin value "user" is missing or empty`; !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	want := `keyfuncs: the request has no key: the Echo value "user" is missing or empty`
	_, err = echolimit.Value("user")(echo.New().NewContext(r, nil))
	if !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = echov5.Value("user")(newEchoV5().NewContext(r, nil))
	if !errors.Is(err, keyfuncs.ErrNoKey) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
