package keyfuncs_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// routed serves one request and returns the routes that limits saw on the way.
func routed(t *testing.T, h func(*[]string) http.Handler, method, target string) (routes []string, code int) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", target, nil)
	r.Method = method // whatever it is; NewRequest has opinions
	r.Header.Set("X-HTTP-Method-Override", "GET")
	h(&routes).ServeHTTP(w, r)
	return routes, w.Code
}

// limit notes the route, where a limit would count it.
func limit(routes *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, err := keyfuncs.Route(r)
		if err != nil {
			route = err.Error()
		}
		*routes = append(*routes, route)
	})
}

// "HEAD counts as GET, as in the mux."
func TestRouteOnAMux(t *testing.T) {
	app := func(routes *[]string) http.Handler {
		mux := http.NewServeMux()
		for _, pattern := range []string{
			"POST /posts/{id}/likes", "GET /posts/{id}", "GET\t /tabs", "/any", "/both", "GET /both", "/dir/", "/exact/{$}", "/files/{path...}",
			"posts.example/any", "PUT posts.example/posts/{id}", "PROPFIND /dav",
		} {
			mux.Handle(pattern, limit(routes))
		}
		inner := http.NewServeMux()
		inner.Handle("GET /users/{id}", limit(routes))
		mux.Handle("/v1/", http.StripPrefix("/v1", inner))
		all := http.NewServeMux()
		all.Handle("/users/{id}", limit(routes))
		mux.Handle("/v2/", http.StripPrefix("/v2", all))
		mux.HandleFunc("/chi/", func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = "/chi/{id}" // as chi does, which leaves the method of its route out
			limit(routes).ServeHTTP(w, r)
		})
		return mux
	}
	for _, tt := range []struct {
		name, method, target string
		want                 string // "": no limit was reached
		code                 int
	}{
		{"the_template_is_the_route", "POST", "/posts/1/likes", "POST /posts/{id}/likes", 200},
		{"of_all_posts", "POST", "/posts/2/likes", "POST /posts/{id}/likes", 200},
		{"whatever_the_query", "POST", "/posts/1/likes?x=7", "POST /posts/{id}/likes", 200},
		{"whatever_the_escapes", "POST", "/posts/%2F%2e/likes", "POST /posts/{id}/likes", 200},
		{"GET_is_GET", "GET", "/posts/1", "GET /posts/{id}", 200},
		{"HEAD_is_GET", "HEAD", "/posts/1", "GET /posts/{id}", 200},
		{"white_space_in_a_pattern_is_one_space", "GET", "/tabs", "GET /tabs", 200},
		{"a_pattern_without_a_method_is_one_route", "GET", "/any", "/any", 200},
		{"whatever_the_method", "DELETE", "/any", "/any", 200},
		{"or_a_method_made_up", "X7F3A", "/any", "/any", 200},
		{"a_pattern_with_one_beside_it_is_another_route", "GET", "/both", "GET /both", 200},
		{"of_its_method_only", "POST", "/both", "/both", 200},
		{"a_mux_in_a_mux_says", "PUT", "/v2/users/7", "/users/{id}", 200},
		{"and_a_pattern's_own", "PROPFIND", "/dav", "OTHER /dav", 200},
		{"a_host_is_part_of_it", "GET", "http://posts.example/any", "posts.example/any", 200},
		{"a_host_behind_a_method_too", "PUT", "http://posts.example/posts/7", "PUT posts.example/posts/{id}", 200},
		{"another_host_is_not", "GET", "http://evil.example/any", "/any", 200},
		{"a_subtree_is_one_route", "GET", "/dir/a/b/c", "/dir/", 200},
		{"a_redirect_to_it_is_none", "GET", "/dir", "", 307},
		{"nor_is_one_to_a_clean_path", "GET", "//posts/1", "", 307},
		{"an_end_is_kept", "GET", "/exact/", "/exact/{$}", 200},
		{"a_rest_is_kept", "GET", "/files/a/b", "/files/{path...}", 200},
		{"the_innermost_mux_says", "GET", "/v1/users/7", "GET /users/{id}", 200},
		{"a_router_in_a_mux_that_leaves_methods_out_has_the_request's", "DELETE", "/chi/7", "DELETE /chi/{id}", 200},
		{"HEAD_there_is_GET_too", "HEAD", "/chi/7", "GET /chi/{id}", 200},
		{"a_method_made_up_is_OTHER", "X7F3A", "/chi/7", "OTHER /chi/{id}", 200},
		{"as_is_one_in_small_letters", "get", "/chi/7", "OTHER /chi/{id}", 200},
		{"no_match_is_no_route", "GET", "/nope", "", 404},
		{"no_method_is_no_route", "POST", "/posts/1", "", 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes, code := routed(t, app, tt.method, tt.target)
			if got := strings.Join(routes, " and "); got != tt.want || code != tt.code {
				t.Fatalf("got %q, %d; want %q, %d", got, code, tt.want, tt.code)
			}
		})
	}
}

func TestStandardMethodsAreSeparateRoutes(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		key, err := keyfuncs.Route(&http.Request{Method: method, Pattern: "/x"})
		check(t, key, err, method+" /x", nil)
	}
}

func TestUnknownMethodsAreOneRoute(t *testing.T) {
	for i := range 1000 {
		key, err := keyfuncs.Route(&http.Request{Method: fmt.Sprintf("M%d", i), Pattern: "/x"})
		check(t, key, err, "OTHER /x", nil)
	}
}

// Other routers fill Pattern as well, and theirs may have spaces.
func TestASpaceInATemplateIsNotAMethod(t *testing.T) {
	for pattern, want := range map[string]string{
		"/a/{id:[a-z 0-9]+}":            "GET /a/{id:[a-z 0-9]+}",
		"example.com/a/{id:[a-z 0-9]+}": "GET example.com/a/{id:[a-z 0-9]+}",
		"GET /a/{id:[a-z 0-9]+}":        "GET /a/{id:[a-z 0-9]+}",
		"GET  \t/a":                     "GET /a",
		"POST /a":                       "GET /a", // an override between the mux and the limit
		"GETS /a":                       "GET /a",
		"GET /GET /a":                   "GET /GET /a",
	} {
		key, err := keyfuncs.Route(&http.Request{Method: "GET", Pattern: pattern})
		check(t, key, err, want, nil)
	}
}

func TestRouteAroundTheMuxIsAnError(t *testing.T) {
	_, err := keyfuncs.Route(httptest.NewRequest("GET", "/", nil))
	if !errors.Is(err, keyfuncs.ErrNoRoute) || errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		t.Fatal(err)
	}
	if !strings.Contains(err.Error(), "inside the mux, not around it") {
		t.Fatalf("%q does not say what to do", err)
	}
	around := func(routes *[]string) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /dir/", limit(routes))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limit(routes).ServeHTTP(w, r)
			mux.ServeHTTP(w, r)
		})
	}
	routes, _ := routed(t, around, "GET", "/dir/x")
	if want := []string{keyfuncs.ErrNoRoute.Error(), "GET /dir/"}; fmt.Sprint(routes) != fmt.Sprint(want) {
		t.Fatalf("got %q, want %q", routes, want)
	}
}
