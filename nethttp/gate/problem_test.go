package gate_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A refusal says in words when to come back, and the header says it in seconds.
func TestAWaitInWords(t *testing.T) {
	for _, tt := range []struct {
		wait          time.Duration
		header, words string
	}{
		{time.Millisecond, "1", "1 second"},
		{time.Second, "1", "1 second"},
		{59 * time.Second, "59", "59 seconds"},
		{60 * time.Second, "60", "60 seconds"},
		{119 * time.Second, "119", "119 seconds"},
		{2 * time.Minute, "120", "2 minutes"},
		{2*time.Minute + time.Second, "121", "2 minutes 1 second"},
		{15 * time.Minute, "900", "15 minutes"},
		{time.Hour, "3600", "1 hour"},
		{119*time.Minute + 59*time.Second, "7199", "1 hour 59 minutes"},
		{2 * time.Hour, "7200", "2 hours"},
		{2*time.Hour + 59*time.Second, "7259", "2 hours"},
		{25 * time.Hour, "90000", "1 day 1 hour"},
		{26*time.Hour + time.Minute, "93660", "1 day 2 hours"},
		{308877 * time.Second, "308877", "3 days 13 hours"},
		{20 * 24 * time.Hour, "1728000", "20 days"},
		{30 * 24 * time.Hour, "1728000", "30 days"}, // a timer of JavaScript would end at once
		{365*24*time.Hour + time.Hour, "1728000", "365 days 1 hour"},
	} {
		for _, ad := range adapters {
			store := decides(core.Decision{RetryAfter: tt.wait, ResetAfter: tt.wait, Reason: core.ReasonLimited})()
			w := gatetest.Do(ad.Mount(gatetest.App{Routes: reply(nil)(store)}.Filled()), "POST", "/replies/7", "X-User-ID", "alice")
			if got := w.Header().Get("Retry-After"); got != tt.header || !strings.Contains(w.Body.String(), "Try again in "+tt.words+`."`) {
				t.Errorf("%s, %s: Retry-After %s, %s; want %s, %s", ad.Name, tt.wait, got, w.Body, tt.header, tt.words)
			}
		}
	}
}

// A refusal tells the limit of a minute from that of a month, and which limit of several it is about. It says nothing
// of the user.
func TestAProblemSaysWhichLimit(t *testing.T) {
	for _, tt := range []struct {
		limit core.Limit
		all   bool // beside another subject
		want  string
	}{
		{core.SlidingWindow(1, time.Minute), false, "The limit of 1 per minute has"},
		{core.FixedWindow(1, 15*time.Minute), false, "The limit of 1 per 15 minutes has"},
		{core.MovingWindow(1, 31*24*time.Hour), false, "The limit of 1 per 31 days has"},
		{core.ElasticWindow(1, 1500*time.Millisecond), false, "The limit of 1 per 1.5s has"},
		{core.CalendarWindow(1, core.Day, nil), false, "The limit of 1 this day has"},
		{core.CalendarWindow(1, core.Month.From(17), nil), false, "The limit of 1 this month has"},
		{core.CalendarWindow(1, core.Year, nil), false, "The limit of 1 this year has"},
		{core.Funnel(1, core.Every(time.Minute)), false, "The limit of 1 has"},
		{core.SlidingWindow(1, time.Hour).Named("burst"), false, `The limit "burst" of 1 per hour has`},
		{core.SlidingWindow(1, time.Hour), true, `The limit on "org-reply" of 1 per hour has`},
		{core.CalendarWindow(1, core.Month, nil).Named("org"), true, `The limit "org" of 1 this month has`},
	} {
		for _, ad := range adapters {
			store := memory()
			l := gatetest.Limit{Limiter: core.Must(core.New(store, tt.limit))}
			if tt.all {
				l.Action = keyfuncs.Action("org-reply")
				l = gatetest.Limit{Limiter: core.Must(core.New(store, core.FixedWindow(100, time.Hour))), And: []gatetest.Limit{l}}
			}
			h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{l}}}}.Filled())
			ask(h)
			var p gate.Problem
			if err := json.NewDecoder(ask(h).Body).Decode(&p); err != nil || !strings.HasPrefix(p.Detail, tt.want+" no room for this") || strings.Contains(p.Detail, "alice") {
				t.Errorf("%s, %s: %q, %v; want %q", ad.Name, tt.limit, p.Detail, err, tt.want)
			}
		}
	}
}

// A middleware that compresses what is written has set Content-Encoding for the problem
// too.
func TestAProblemStaysCompressed(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			h := ad.Mount(gatetest.App{Routes: reply(nil)(decides(refusal)())}.Filled())
			w := httptest.NewRecorder()
			w.Header().Set("Content-Encoding", "rot")
			r := httptest.NewRequest("POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "alice")
			h.ServeHTTP(compresses{w}, r)
			if got := w.Header().Get("Content-Encoding"); w.Code != 429 || got != "rot" || w.Body.Len() == 0 {
				t.Errorf("%d, Content-Encoding %q, %s", w.Code, got, w.Body)
			}
		})
	}
}

// So has one of the framework, which puts its writer inside the framework's.
func TestAProblemStaysCompressedInAFramework(t *testing.T) {
	limiter := core.Must(core.New(decides(refusal)(), core.FixedWindow(5, time.Minute)))
	g := gin.New()
	g.Use(func(c *gin.Context) {
		c.Header("Content-Encoding", "rot")
		c.Writer = ginCompresses{c.Writer}
	}, ginlimit.Limit(limiter, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x")))
	g.GET("/", func(*gin.Context) {})
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("Content-Encoding", "rot")
			c.Response().Writer = compresses{c.Response().Writer}
			return next(c)
		}
	}, echolimit.Limit(limiter, echolimit.From(keyfuncs.Everyone), echolimit.Action("x")))
	e.GET("/", func(echo.Context) error { return nil })
	for name, h := range map[string]http.Handler{"ginlimit": g, "echolimit": e, "echolimit/echov5": compressedEchoV5(limiter)} {
		w := gatetest.Do(h, "GET", "/")
		if got := w.Header().Get("Content-Encoding"); w.Code != 429 || got != "rot" || w.Body.Len() == 0 {
			t.Errorf("%s: %d, Content-Encoding %q, %s", name, w.Code, got, w.Body)
		}
	}
}

type ginCompresses struct{ gin.ResponseWriter }

// compresses stands for a writer that changes the body.
type compresses struct{ http.ResponseWriter }

func (c compresses) Write(b []byte) (int, error) { return c.ResponseWriter.Write(b) }

func (c compresses) WriteString(s string) (int, error) { return io.WriteString(c.ResponseWriter, s) }

func (c compresses) Unwrap() http.ResponseWriter { return c.ResponseWriter }
