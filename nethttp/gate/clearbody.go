package gate

import (
	"net/http"
	"reflect"
)

// ClearBody deletes the headers that describe the body that would have been sent instead
// of a problem. Content-Encoding stays if w is another middleware's writer, which may
// compress the problem as well.
func ClearBody(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Expires"} {
		delete(h, name)
	}
	if h["Content-Encoding"] != nil && ofServer(w) {
		delete(h, "Content-Encoding")
	}
}

// ofServer reports whether nothing that might compress stands between w and the server.
func ofServer(w http.ResponseWriter) bool {
	for {
		if own, ok := w.(interface{ behind() http.ResponseWriter }); ok {
			w = own.behind()
			continue
		}
		t := reflect.TypeOf(w)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.PkgPath() {
		case "net/http", "net/http/httptest", "golang.org/x/net/http2":
			return true
		case "github.com/gin-gonic/gin", "github.com/tailcut/tailcut/ginlimit", "github.com/labstack/echo/v4", "github.com/labstack/echo/v5":
			u, ok := w.(interface{ Unwrap() http.ResponseWriter })
			if !ok {
				return false
			}
			w = u.Unwrap()
		default:
			return false
		}
	}
}
