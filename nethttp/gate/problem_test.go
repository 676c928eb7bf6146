package gate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
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
		{30 * 24 * time.Hour, "2592000", "30 days"},
		{365*24*time.Hour + time.Hour, "31539600", "365 days 1 hour"},
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
