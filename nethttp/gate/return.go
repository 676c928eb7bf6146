package gate

import (
	"net/http"
	"strings"
)

// giveBack gives r what the handler has found out about its copy inner: a middleware outside may read
// the pattern of a mux inside, and the server removes the uploaded files that it finds in r. It
// writes nothing else, since a middleware outside may read r in another goroutine.
func giveBack(r, inner *http.Request) {
	if r.Pattern != inner.Pattern {
		r.Pattern = inner.Pattern
		for _, name := range wildcards(r.Pattern) {
			r.SetPathValue(name, inner.PathValue(name))
		}
	}
	if r.MultipartForm != inner.MultipartForm {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Form == nil && inner.Form != nil {
		r.Form, r.PostForm = inner.Form, inner.PostForm
	}
}

// wildcards are the names in a pattern of http.ServeMux.
func wildcards(pattern string) (names []string) {
	for {
		_, rest, ok := strings.Cut(pattern, "{")
		if !ok {
			return names
		}
		var name string
		name, pattern, _ = strings.Cut(rest, "}")
		if name = strings.TrimSuffix(name, "..."); name != "$" {
			names = append(names, name)
		}
	}
}
