package gate

// Whether the client has left: what notes it while the handlers run.

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// An Answering notes whether the client has left when the response gets its status. Nil notes nothing.
type Answering struct {
	body watchedBody
	ctx  context.Context
	late bool
}

// Now is called before the response gets its status.
func (a *Answering) Now() {
	if a != nil {
		a.late = a.ctx.Err() != nil || a.body.failed.Load()
	}
}

// A watchedBody records whether the body could not be read to its end. A client can cause that
// at will, and net/http does not always cancel the context then: with HTTP/2 a client can end its
// stream too early, and with both protocols it can be silent until ReadTimeout, or until the
// handler gives up.
type watchedBody struct {
	io.ReadCloser
	closed, failed atomic.Bool
	reads          atomic.Int32 // under way
}

// cut reports whether a read has failed, or has not returned. It looks at the reads under way first:
// one that ends meanwhile has set failed.
func (b *watchedBody) cut() bool { return b.reads.Load() > 0 || b.failed.Load() }

// watch has r read its body, if it has one, through a watchedBody. r is the copy with the mark:
// in the server's own request net/http looks for the type of its own Body.
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
	b.closed.Store(true)    // a read that begins from now on fails, and the client is not at fault
	if b.reads.Load() > 0 { // the handler has given up waiting for the client
		b.failed.Store(true)
	}
	return b.ReadCloser.Close()
}
