package keyfuncs

import (
	"net/http"
	"strings"
)

// Route is the request's method and the pattern of the [http.ServeMux] that it
// matched, "POST /posts/{id}/likes": all posts are one action, and there are no
// more actions than routes and methods. A pattern's host is part of it.
//
// HEAD counts as GET, which is what the mux takes it for. Methods other than
// GET, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT and TRACE are all OTHER: a
// pattern without a method matches whatever a client makes up.
//
// The pattern is that of the innermost mux. Behind http.StripPrefix two routes
// may have the same; tell them apart with [Action].
//
// A request without a pattern is ErrNoRoute. It comes from a limit around the
// mux, which runs before there is a match: mount it on the patterns instead.
func Route(r *http.Request) (string, error) {
	pattern := r.Pattern
	if pattern == "" {
		return "", ErrNoRoute
	}
	method, template := routeMethod(r.Method), pattern
	// As the mux parses it: what stands before a space is the method. A space
	// after a slash belongs to the template; the mux has none, others may.
	if i := strings.IndexAny(pattern, " \t"); i >= 0 && strings.IndexByte(pattern[:i], '/') < 0 {
		template = strings.TrimLeft(pattern[i+1:], " \t")
		if pattern[:i] == method && pattern[i] == ' ' && len(pattern) == i+1+len(template) {
			return pattern, nil // nearly always, and nothing to allocate
		}
	}
	return method + " " + template, nil
}

// RouteTemplate is what Route is in other frameworks, whose adapters call it: the
// request's method, bounded as in Route, and the template that the framework
// matched. A request that it matched to none, template being "", is the action
// "unmatched", one for all such requests.
func RouteTemplate(r *http.Request, template string) string {
	if template == "" {
		return "unmatched"
	}
	return routeMethod(r.Method) + " " + template
}

// routeMethod bounds what a client can choose.
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
