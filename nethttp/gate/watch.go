package gate

// This file watches the response and the request while the handlers run, and clears a response.

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// An Answering notes whether the client has left before the response gets its status. A nil
// Answering notes nothing.
type Answering struct {
	body watchedBody
	ctx  context.Context
	late bool
}

// Now notes whether the client has left. Call it before the response gets its status.
func (a *Answering) Now() {
	if a != nil {
		a.late = a.ctx.Err() != nil || a.body.failed.Load()
	}
}

// A watchedBody notes whether the body could not be read to its end. A client can cause that at
// will, and net/http does not always cancel the request's context then:
//
//   - With HTTP/2, a client can end its stream too early.
//   - With HTTP/1.1 and HTTP/2, a client can send nothing until ReadTimeout, or until the handler
//     gives up.
type watchedBody struct {
	io.ReadCloser
	closed, failed atomic.Bool
	reads          atomic.Int32 // the number of reads under way
}

// cut reports whether a read has failed or has not returned. It looks at reads first: if a read has
// failed and returned by then, it has set failed.
func (b *watchedBody) cut() bool { return b.reads.Load() > 0 || b.failed.Load() }

// watch makes r read its body, if r has one, through a watchedBody. r must be the copy of the
// request that has the mark, because in the server's own request net/http looks for its own type of
// Body.
func watch(r *http.Request) *Answering {
	a := &Answering{body: watchedBody{ReadCloser: r.Body}, ctx: r.Context()}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &a.body
	}
	return a
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.reads.Add(1)
	defer b.reads.Add(-1)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.closed.Store(true)    // later reads fail, but the client is not at fault
	if b.reads.Load() > 0 { // the handler has given up waiting for the client
		b.failed.Store(true)
	}
	return b.ReadCloser.Close()
}

// Watch wraps a ResponseWriter for a [Watched]. answers is the argument of the method Watch of
// [Framework]. The function answered returns the status of the response, and whether the response
// has begun. The status is 200 if nothing was written, and 0 if the connection was taken over.
//
// The wrapper is an http.Flusher or an http.Pusher if w is, and it is always an http.Hijacker.
// http.ResponseController finds the other methods of w.
func Watch(w http.ResponseWriter, answers *Answering) (_ http.ResponseWriter, answered func() (status int, begun bool)) {
	rec := &watched{ResponseWriter: w, answers: answers}
	_, flushes := w.(http.Flusher)
	pusher, pushes := w.(http.Pusher)
	switch {
	case flushes && pushes:
		return struct {
			flushing
			http.Pusher
		}{flushing{rec}, pusher}, rec.answered
	case flushes:
		return flushing{rec}, rec.answered
	case pushes:
		return struct {
			*watched
			http.Pusher
		}{rec, pusher}, rec.answered
	}
	return rec, rec.answered
}

// watched remembers the status of the response.
type watched struct {
	http.ResponseWriter
	answers *Answering
	status  int // 0 if nothing has been written
	taken   bool
}

func (w *watched) answered() (status int, begun bool) {
	if w.taken {
		return 0, true
	}
	return cmp.Or(w.status, http.StatusOK), w.status != 0
}

// behind lets ofServer recognize this wrapper.
func (w *watched) behind() http.ResponseWriter { return w.ResponseWriter }

// answer calls Now if w has not noted a status yet.
func (w *watched) answer() {
	if w.status == 0 {
		w.answers.Now()
	}
}

func (w *watched) saw(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *watched) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)                          // it panics on a status that does not exist
	if status >= 200 || status == http.StatusSwitchingProtocols { // other statuses below 200 are informational
		w.answer()
		w.saw(status)
	}
}

func (w *watched) Write(b []byte) (int, error) {
	w.answer()
	w.saw(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

func (w *watched) WriteString(s string) (int, error) {
	w.answer()
	w.saw(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom lets the server send a file without copying the data.
func (w *watched) ReadFrom(r io.Reader) (n int64, err error) {
	w.answer()
	n = 1 // if r panics, some of it may have been sent
	defer func() {
		if n > 0 {
			w.saw(http.StatusOK)
		}
	}()
	n, err = io.Copy(w.ResponseWriter, r)
	return n, err
}

// An http.ResponseController calls FlushError and Hijack, and finds other methods by Unwrap.
func (w *watched) FlushError() error {
	w.answer()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.saw(http.StatusOK)
	}
	return err
}

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.taken = w.taken || err == nil // it fails on HTTP/2
	return conn, rw, err
}

// CloseNotify is deprecated, but Gin's c.Stream calls it without a check.
func (w *watched) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Discarding returns a ResponseWriter whose methods Write and WriteHeader send nothing to w. They
// call the argument wrote instead, and Write returns the error of wrote.
func Discarding(w http.ResponseWriter, wrote func() error) http.ResponseWriter {
	return &discarding{w, wrote}
}

type discarding struct {
	http.ResponseWriter
	wrote func() error
}

func (d *discarding) WriteHeader(int)             { _ = d.wrote() }
func (d *discarding) Write([]byte) (int, error)   { return 0, d.wrote() }
func (d *discarding) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// flushing is a watched with the method Flush. Handlers that stream look for this method.
type flushing struct{ *watched }

func (f flushing) Flush() { _ = f.FlushError() }

// ClearBody deletes headers that were set for another body than the problem, such as
// Content-Length. w is the writer that the framework's own writer wraps. If w belongs to another
// middleware, ClearBody keeps Content-Encoding, because that middleware may compress the problem
// too.
func ClearBody(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Expires"} {
		delete(h, name)
	}
	if h["Content-Encoding"] != nil && ofServer(w) {
		delete(h, "Content-Encoding")
	}
}

// ofServer reports whether w is the server's own writer, or a wrapper of this package around it.
// The server's writer has SetWriteDeadline and no Unwrap.
func ofServer(w http.ResponseWriter) bool {
	if wrapper, ok := w.(interface{ behind() http.ResponseWriter }); ok {
		return ofServer(wrapper.behind())
	}
	_, wraps := w.(interface{ Unwrap() http.ResponseWriter })
	_, serves := w.(interface{ SetWriteDeadline(time.Time) error })
	return serves && !wraps
}
