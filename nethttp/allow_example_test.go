package nethttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// A batch costs as many units as it has items, which only the handler knows.
func ExampleAllow() {
	items := core.Must(core.New(memorystore.New(nil), core.Funnel(100, core.Per(10, time.Minute))))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		batch := strings.Split(r.FormValue("items"), ",")
		d := nethttp.Allow(w, r, items, "alice", "item", len(batch))
		if !d.Allowed {
			return
		}
		fmt.Fprintf(w, "%d items, and room for %d", len(batch), d.Remaining)
	})
	for _, n := range []int{60, 60, 40} {
		r := httptest.NewRequest("POST", "/items?items=x"+strings.Repeat(",x", n-1), nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d, remaining %s, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
		if w.Code == http.StatusOK {
			fmt.Println(w.Body)
		}
	}
	// Output:
	// 200, remaining 40, retry after ""
	// 60 items, and room for 40
	// 429, remaining 40, retry after "120"
	// 200, remaining 0, retry after ""
	// 40 items, and room for 0
}

// A login is limited by the e-mail address in its JSON body, which only the handler
// reads. The limit on the client's address is outside, and Allow answers as that one does. Only failures are
// counted, and the attempt has a slot until it is released.
func ExampleAllow_login() {
	store := memorystore.New(nil)
	perAddress := core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute)))
	perEmail := core.Must(core.New(store, core.SlidingWindow(2, 15*time.Minute)))
	perEmail = core.Must(perEmail.With(core.OnlyFailures{}))

	check := func(_ context.Context, password string) (right bool, err error) {
		if password == "hang up" {
			return false, context.Canceled
		}
		return password == "secret", nil
	}
	logins := nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, "too many attempts")
	}}
	h := logins.Limit(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("login-address"))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			var login struct{ Email, Password string }
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1000)).Decode(&login); err != nil {
				http.Error(w, "bad request", http.StatusBadRequest)
				return
			}
			email := strings.ToLower(strings.TrimSpace(login.Email)) // as the accounts have it
			address, _ := keyfuncs.RemoteIP(r)
			// With the address, or anybody could lock the owner out.
			who, ctx := email+" from "+address, context.WithoutCancel(r.Context())
			d := nethttp.Allow(w, r, perEmail, who, "login", 1)
			if !d.Allowed {
				return
			}
			defer perEmail.Release(ctx, d)
			failed := true // also if the check has an error or panics: a client can cause that by hanging up
			defer func() {
				if !failed {
					return
				}
				if _, err := perEmail.Surcharge(ctx, who, "login", 1); err != nil {
					log.Print(err) // this failure is not counted
				}
			}()
			right, err := check(r.Context(), login.Password)
			switch {
			case err != nil || r.Context().Err() != nil:
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(w, "try again")
			case right:
				failed = false
				fmt.Fprint(w, "welcome")
			default:
				fmt.Fprint(w, "wrong password")
			}
		}))

	for _, login := range []string{
		`{"email":"alice@example.com","password":"secret"}`,
		`{"email":"alice@example.com","password":"a guess"}`,
		`{"email":"Alice@example.com","password":"a guess"}`,
		`{"email":"alice@example.com","password":"secret"}`,
		`{"email":"xiaoming@example.com","password":"hang up"}`,
		`{"email":"xiaoming@example.com","password":"hang up"}`,
		`{"email":"xiaoming@example.com","password":"secret"}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login", strings.NewReader(login)))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 welcome
	// 200 wrong password
	// 200 wrong password
	// 429 too many attempts
	// 500 try again
	// 500 try again
	// 429 too many attempts
}

// Without a Limit around the handler, a Config says how Allow answers.
func ExampleConfig_Allow() {
	uploads := core.Must(core.New(memorystore.New(nil), core.Funnel(10, core.Per(10, time.Hour))))
	answers := nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, "%d megabytes are left", d.Remaining)
	}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		megabytes := int(r.ContentLength>>20) + 1
		if !answers.Allow(w, r, uploads, "alice", "upload", megabytes).Allowed {
			return
		}
		fmt.Fprint(w, "uploaded")
	})
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/uploads", strings.NewReader(strings.Repeat("x", 6<<20))))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 uploaded
	// 429 3 megabytes are left
}
