package keyfuncs

// Actions that are routes.

import (
	"net/http"
	"reflect"
	"strings"
)

// Route returns the request's method and the [http.ServeMux] pattern that the request matched:
// "POST /posts/{id}/likes". So likes of all posts are one action, and there are no more actions
// than routes. If the pattern has a host, the action has it too.
//
//   - A pattern without a method, such as "/posts/{id}/likes", is one action for all methods.
//     Otherwise a client would get a quota for each method.
//   - HEAD counts as GET, as in the mux. A client can make up methods, so any other method than
//     GET, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT and TRACE is OTHER.
//   - Other routers that set the pattern, such as chi, leave out the method of the route. Route
//     then adds the request's method. So a route of such a router for all methods has nine actions:
//     name it with [Action].
//   - The pattern is that of the innermost mux. Behind http.StripPrefix two routes may have the
//     same pattern: name them with [Action].
//
// If the request has no pattern, the error is [ErrNoRoute]: the limit is mounted around the mux,
// and runs before a pattern is matched. Mount it on the patterns instead.
func Route(r *http.Request) (string, error) {
	template := r.Pattern
	if template == "" {
		return "", ErrNoRoute
	}
	// In a mux's pattern the method ends with a space. A space after a slash belongs to
	// the template: the mux allows none there, other routers do.
	if i := strings.IndexAny(template, " \t"); i >= 0 && strings.IndexByte(template[:i], '/') < 0 {
		template = strings.TrimLeft(template[i+1:], " \t")
	} else if ofServeMux(r) {
		return template, nil
	}
	return routeMethod(r.Method) + " " + template, nil
}

// RouteTemplate is [Route] for the adapters of other frameworks. It returns the request's
// method, as in Route, and the template that the framework matched. If template is empty,
// no route matched, and the action is "unmatched" for all such requests.
func RouteTemplate(r *http.Request, template string) string {
	if template == "" {
		return "unmatched"
	}
	return routeMethod(r.Method) + " " + template
}

// muxPattern is the field in which a ServeMux keeps the pattern that a request matched. The first
// field of a pattern is its text. In a version of Go with other fields, ofServeMux reports false.
var muxPattern, _ = reflect.TypeFor[http.Request]().FieldByName("pat")

// ofServeMux reports whether the request's Pattern is one of a ServeMux. It reads an unexported
// field because no method of a request tells whether a ServeMux has set Pattern, or a router inside it.
func ofServeMux(r *http.Request) bool {
	pat := reflect.Indirect(reflect.ValueOf(r).Elem().FieldByIndex(muxPattern.Index))
	return pat.Kind() == reflect.Struct && pat.NumField() > 0 && pat.Field(0).String() == r.Pattern
}

// routeMethod bounds the number of methods.
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
