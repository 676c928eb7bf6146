package gate

// The answer to a request that does not pass.

import (
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
)

// answer calls Deny or Fail. If they have not answered the request, the framework does.
func answer[C any](f Framework[C], cfg *Config[C], c C, a *attempt, t *told) (err error) {
	if a.failure != nil && cfg.Fail != nil || a.failure == nil && cfg.Deny != nil {
		var answered bool
		if answered, err = callHook(f, cfg, c, a); answered {
			return err
		}
	}
	if a.failure != nil {
		return f.Answer(c, a.failure.Problem(), err)
	}
	return f.Answer(c, refusal(t, cfg.Forbid), err)
}

// callHook calls Deny or Fail, and reports whether they have answered.
func callHook[C any](f Framework[C], cfg *Config[C], c C, a *attempt) (answered bool, err error) {
	c, w := f.Watch(c, nil)
	defer w.Restore()
	if a.failure != nil {
		err = cfg.Fail(c, a.failure)
	} else {
		var d core.Decision
		a.share(&d)
		err = cfg.Deny(c, d)
	}
	return w.Answered(), err
}

// ClearBody deletes the headers that describe another body than the problem. w is the writer of the
// response below the framework's own. ClearBody keeps Content-Encoding if w is another middleware's
// writer, which may compress the problem too.
func ClearBody(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Expires"} {
		delete(h, name)
	}
	if h["Content-Encoding"] != nil && ofServer(w) {
		delete(h, "Content-Encoding")
	}
}

// ofServer reports whether w is the server's writer: the one that an http.ResponseController ends
// at, and that takes its deadlines. Wrappers of this package do not count.
func ofServer(w http.ResponseWriter) bool {
	if wrapper, ok := w.(interface{ behind() http.ResponseWriter }); ok {
		return ofServer(wrapper.behind())
	}
	_, wraps := w.(interface{ Unwrap() http.ResponseWriter })
	_, serves := w.(interface{ SetWriteDeadline(time.Time) error })
	return serves && !wraps
}
