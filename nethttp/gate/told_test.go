package gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// Somebody sees the waits of a user whose name is hidden, and knows all names. A hash that can be computed
// elsewhere tells which of a million it is, after 400 refusals.
func TestTheSpreadOfAUserCannotBeComputedElsewhere(t *testing.T) {
	if os.Getenv("TAILCUT_SPREAD") != "" {
		denied := gatetest.Decides(core.Decision{RetryAfter: 1_000_000 * time.Second})()
		limit := nethttp.Config{SpreadRetryAfter: true}.Limit(core.Must(core.New(denied, core.FixedWindow(5, time.Minute))), keyfuncs.Header("X-User-ID"), keyfuncs.Action("reply"))
		for i := range 100 {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("X-User-ID", fmt.Sprint("user-", i))
			w := httptest.NewRecorder()
			limit(http.NotFoundHandler()).ServeHTTP(w, r)
			fmt.Println("told", w.Header().Get("Retry-After"))
		}
		return
	}
	told := func() []string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTheSpreadOfAUserCannotBeComputedElsewhere$")
		cmd.Env = append(os.Environ(), "TAILCUT_SPREAD=1")
		out, err := cmd.CombinedOutput()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) < 100 {
			t.Fatalf("%v\n%s", err, out)
		}
		return lines[:100]
	}
	same, one, other := 0, told(), told()
	for i := range one {
		if one[i] == other[i] {
			same++
		}
	}
	if same > 2 {
		t.Errorf("another process has the same wait for %d of 100 users", same)
	}
}
