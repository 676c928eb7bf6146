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
		for part := range strings.SplitSeq(r.Pattern, "{") {
			if name, _, wild := strings.Cut(part, "}"); wild && name != "$" {
				name = strings.TrimSuffix(name, "...")
				r.SetPathValue(name, inner.PathValue(name))
			}
		}
	}
	if r.MultipartForm != inner.MultipartForm {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Form == nil && inner.Form != nil {
		r.Form, r.PostForm = inner.Form, inner.PostForm
	}
}
