package route

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// The routes match as an http.ServeMux does, whatever their order.
func TestRoutesMatchAsAServeMux(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "{x}", "%41"})
		text := rapid.SampledFrom([]string{"a", "b", "A", "d", "", ".", "..", "%61", "%2e", ".a", "%zz", "a%", "%6"})
		end := rapid.SampledFrom([]string{"", "", "/", "/{$}", "/{rest...}"})
		var given []Route
		mux := http.NewServeMux()
		for i := range 12 {
			pattern := rapid.SampledFrom([]string{"", "GET ", "HEAD ", "POST "}).Draw(t, "method")
			for j, s := range rapid.SliceOfN(segment, 0, 3).Draw(t, "segments") {
				if s == "{x}" {
					s = fmt.Sprintf("{x%d}", j)
				}
				pattern += "/" + s
			}
			if pattern += end.Draw(t, "end"); strings.HasSuffix(pattern, " ") || pattern == "" {
				pattern += "/"
			}
			if register(mux, pattern) != nil { // it conflicts
				continue
			}
			given = append(given, Route{pattern, fmt.Sprint(i)})
		}
		if len(given) == 0 {
			return
		}
		mux = http.NewServeMux()
		paths := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(text, 0, 4), func(s []string) string { return "/" + strings.Join(s, "/") }), 5, 5).Draw(t, "paths")
		for _, g := range given {
			mux.HandleFunc(g.Pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Action", g.Action) })
			_, path, _ := cutMethod(g.Pattern)
			paths = append(paths, wildcard.ReplaceAllStringFunc(path, func(string) string { return text.Draw(t, "wildcard") }))
		}
		for range 4 {
			given = rapid.Permutation(given).Draw(t, "order")
			r, actions, err := New(given)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 * len(paths) {
				method, path := []string{"GET", "HEAD", "POST", "PUT"}[i%4], paths[i/4]
				w := httptest.NewRecorder()
				if _, err := url.ParseRequestURI(path); err == nil { // else net/http answers 400
					mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				}
				got, want := "", w.Header().Get("Action")
				switch i := r.Action([]byte(method), []byte(path)); i {
				case None:
				case Redirected:
					got = "redirected"
				default:
					got = actions[i]
				}
				if w.Header().Get("Location") != "" {
					want = "redirected"
				}
				if got != want {
					t.Fatalf("%v: %s %s is %q, want %q", given, method, path, got, want)
				}
			}
		}
	})
}
