package keyfuncs

// Actions that are the method and pattern of a route.

import (
	"net/http"
	"reflect"
	"strings"
)

// Route returns the request's method and the [http.ServeMux] pattern that matched, such as "POST
// /posts/{id}/likes". So the likes of all posts are one action, and clients cannot invent actions.
// If the pattern has a host, the action has the host too.
//
//   - If the pattern has no method, such as "/posts/{id}/likes", all methods are one action.
//     Otherwise a client would have a quota for each method.
//   - HEAD counts as GET, as in the mux. A client can invent methods, so a method other than GET,
//     POST, PUT, PATCH, DELETE, OPTIONS, CONNECT and TRACE becomes OTHER.
//   - Routers other than ServeMux that set the pattern, such as chi, leave out the method. Route
//     then adds the request's method. So a route of such a router that accepts all methods has nine
//     actions. If you want one action, use [Action].
//   - The pattern is the one that the innermost mux matched. Behind http.StripPrefix two routes may
//     have the same pattern, and are then one action. If you want two actions, use [Action].
//
// If the request has no pattern, the error is [ErrNoRoute]. This happens if the limit is mounted
// around the mux, because the limit then runs before the mux matches a pattern. Mount the limit on
// the patterns instead.
func Route(r *http.Request) (string, error) {
	template := r.Pattern
	if template == "" {
		return "", ErrNoRoute
	}
	// A pattern of ServeMux may start with a method and a space. Other routers allow spaces in the
	// path, so a space after a slash belongs to the path.
	if i := strings.IndexAny(template, " \t"); i >= 0 && strings.IndexByte(template[:i], '/') < 0 {
		template = strings.TrimLeft(template[i+1:], " \t")
	} else if ofServeMux(r) {
		return template, nil
	}
	return routeMethod(r.Method) + " " + template, nil
}

// RouteTemplate is [Route] for adapters of frameworks. It returns the request's method, written as
// in Route, and the route template that the framework matched. If template is empty, no route
// matched, and the action is "unmatched".
func RouteTemplate(r *http.Request, template string) string {
	if template == "" {
		return "unmatched"
	}
	return routeMethod(r.Method) + " " + template
}

// muxPattern is the unexported field of a request in which ServeMux stores the pattern that
// matched. The first field of the pattern is its text. If a future version of Go has other fields,
// ofServeMux reports false.
var muxPattern, _ = reflect.TypeFor[http.Request]().FieldByName("pat")

// ofServeMux reports whether a ServeMux has set the request's Pattern. It reads an unexported
// field, because a router inside a ServeMux can overwrite Pattern, and no method of a request tells
// who has set it.
func ofServeMux(r *http.Request) bool {
	pat := reflect.Indirect(reflect.ValueOf(r).Elem().FieldByIndex(muxPattern.Index))
	return pat.Kind() == reflect.Struct && pat.NumField() > 0 && pat.Field(0).String() == r.Pattern
}

// routeMethod returns the method, or OTHER for a method that a client has invented. So the number
// of methods is bounded.
func routeMethod(method string) string {
	switch method {
	case http.MethodHead:
		return http.MethodGet
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	}
	return "OTHER"
}
