package gate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// strange is a store whose decisions are about a subject that nobody asked about.
type strange struct{ *memorystore.Store }

func (s strange) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	d.Subject = 7
	return d, r, err
}

func TestAStoreThatDecidesAboutAnUnknownSubject(t *testing.T) {
	l := core.Must(core.New(strange{memorystore.New(nil)}, core.FixedWindow(1, time.Hour)))
	h := nethttp.Config{Keep: true}.Limit(l, keyfuncs.RemoteIP, keyfuncs.Action("reply"))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := nethttp.Decision(r); !ok || d.Subject != 0 {
			t.Errorf("%+v, %t", d, ok)
		}
	}))
	for _, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("POST", "/", nil)); w.Code != want {
			t.Errorf("%d, not %d", w.Code, want)
		}
	}
}

// A key function may hold a lock when it meets a nil request, and panic: it is not called before there is a
// request.
func TestLimitAllCallsNoKeyFunction(t *testing.T) {
	called := func(r *http.Request) (string, error) {
		t.Error("it is called at start-up")
		return "alice", nil
	}
	s := memory()
	limiter := core.Must(core.New(s, core.FixedWindow(5, time.Minute)))
	mine, other := nethttp.By(limiter, called, keyfuncs.Action("x")), nethttp.By(limiter, keyfuncs.Everyone, keyfuncs.Action("y"))
	nethttp.LimitAll(mine, other)
	nethttp.LimitAll(other, mine)
	nethttp.LimitAll(nethttp.By(limiter, keyfuncs.Everyone, called), other)
	nethttp.LimitAll(other, nethttp.By(limiter, keyfuncs.Everyone, called))
}

// The policy names the limits of all subjects, in their order, whichever limiter is picked for the first.
func TestThePolicyOfSeveralSubjectsAndAPickedLimiter(t *testing.T) {
	store := memory()
	named := func(i int) *core.Limiter {
		return core.Must(core.New(store, core.FixedWindow(10+i, time.Minute).Named(fmt.Sprint("n", i))))
	}
	picked := core.Must(core.New(store, core.FixedWindow(9, time.Minute).Named("picked")))
	for n := 1; n <= 5; n++ {
		var subjects []gate.Subject[*http.Request]
		want := `"picked";q=9;w=60`
		for i := range n {
			subjects = append(subjects, nethttp.By(named(i), keyfuncs.Everyone, keyfuncs.Action(fmt.Sprint("a", i))))
			if i > 0 {
				want += fmt.Sprintf(`, "n%d";q=%d;w=60`, i, 10+i)
			}
		}
		cfg := nethttp.Config{Headers: gate.IETF, Limiter: func(*http.Request) (*core.Limiter, error) { return picked, nil }}
		w := httptest.NewRecorder()
		cfg.LimitAll(subjects...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("RateLimit-Policy"); w.Code != 200 || got != want {
			t.Errorf("%d subjects: %d, %s; want %s", n, w.Code, got, want)
		}
	}
}
