package main

// The page's poll: what a user has left of every limit.

import (
	"errors"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A status is a user's standing with all limits of the forum. Times are in milliseconds.
type status struct {
	Forum   int64               `json:"forum"`   // differs between processes, which have their own posts
	Version int                 `json:"version"` // of the forum; it changes with every post, reply and like
	Actions map[string]standing `json:"actions"`
}

// A standing is a user's standing with one action's limiter.
type standing struct {
	Limits []limitStanding `json:"limits"`
	Ban    banStanding     `json:"ban"`
}

type limitStanding struct {
	Limit     string  `json:"limit"`
	Quota     int     `json:"quota"`
	Remaining int     `json:"remaining"`
	Retry     float64 `json:"retry_ms"`
	Reset     float64 `json:"reset_ms"`
	Unit      float64 `json:"unit_ms"` // time in which a bucket or funnel gives back one unit; 0 for a window
	Shadow    bool    `json:"shadow"`
}

type banStanding struct {
	Banned   bool    `json:"banned"`
	Retry    float64 `json:"retry_ms"`
	Refusals int     `json:"refusals"`
	Level    int     `json:"level"`
}

// status answers for the user that the request names, and charges nothing.
func (s *site) status(r *http.Request, _ string) answer {
	who, err := user(r)
	if err != nil {
		return refusedStatus(err)
	}
	out := status{Forum: s.forum.began, Version: s.forum.changes(), Actions: map[string]standing{}}
	for action, limiter := range map[string]*core.Limiter{
		"reply": s.limits.reply, "like": s.limits.like, "post": s.limits.post,
	} {
		st, err := limiter.Status(r.Context(), who, action)
		if err != nil {
			return refusedStatus(err)
		}
		out.Actions[action] = newStanding(st)
	}
	return answer{status: http.StatusOK, body: out}
}

func refusedStatus(err error) answer {
	code, message := http.StatusServiceUnavailable, "the limits cannot be read at present"
	if errors.Is(err, keyfuncs.ErrBadKey) || errors.Is(err, keyfuncs.ErrNoKey) {
		code, message = http.StatusBadRequest, "the user's name cannot be read"
	}
	return answer{status: code, body: map[string]string{"error": message}}
}

func newStanding(st core.Status) standing {
	out := standing{Ban: banStanding{
		Banned: st.Ban.Banned, Retry: millis(st.Ban.RetryAfter), Refusals: st.Ban.Refusals, Level: st.Ban.Level,
	}}
	for _, l := range st.Limits {
		one := limitStanding{
			Limit: l.Limit.String(), Quota: l.Limit.Quota(), Remaining: l.Remaining,
			Retry: millis(l.RetryAfter), Reset: millis(l.ResetAfter), Shadow: l.Limit.IsShadow(),
		}
		if n, d := l.Limit.Rate(); n > 0 {
			one.Unit = millis(d) / float64(n)
		}
		out.Limits = append(out.Limits, one)
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
