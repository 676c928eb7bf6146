package gate

import (
	"net/http"
	"reflect"
)

// ClearBody deletes the headers that describe another body than the problem. It keeps
// Content-Encoding if w is another middleware's writer, which may compress the problem too.
func ClearBody(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Expires"} {
		delete(h, name)
	}
	if h["Content-Encoding"] != nil && ofServer(w) {
		delete(h, "Content-Encoding")
	}
}

// ofServer reports whether w is the server's writer, wrapped at most by writers that do not
// compress.
func ofServer(w http.ResponseWriter) bool {
	for {
		if wrapper, ok := w.(interface{ behind() http.ResponseWriter }); ok {
			w = wrapper.behind()
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
