package nethttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// An export reserves 100 rows. How many it has sent is known at its end: the first sends fewer and gets
// the rest back, the second sends more than the quota has left. The third is refused until the debt
// is paid. The headers show the decision on entry.
func ExampleSettle() {
	rows := core.Must(core.New(memorystore.New(nil), core.TokenBucket(1000, core.Per(1000, time.Minute))))
	limit := nethttp.Config{
		Settle: true,
		Cost:   func(*http.Request) (int, error) { return 100, nil },
	}.Limit(rows, keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := 0
		defer func() {
			if err := nethttp.Settle(r, sent); err != nil {
				fmt.Println(err) // it stays at 100
			}
		}()
		for wanted, _ := strconv.Atoi(r.FormValue("rows")); sent < wanted; sent++ {
			fmt.Fprintln(w, "row", sent)
		}
	}))
	for _, n := range []string{"30", "1470", "1"} {
		r := httptest.NewRequest("GET", "/export?rows="+n, nil)
		r.Header.Set("X-User-ID", "alice")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d, remaining %s, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, remaining 900, retry after ""
	// 200, remaining 870, retry after ""
	// 429, remaining 0, retry after "36"
}
