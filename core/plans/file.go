package plans

// A file as a source of documents.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// settle is how long a file must not have changed before it is read.
const settle = 500 * time.Millisecond

// File returns a source for [Plans.Follow] that reads a file of at most 64 MiB. Several Plans may follow it.
//
// A file is read when it has not changed for half a second, by its time of modification or by what earlier
// looks have seen, and only if it does not change meanwhile. So a file that is being written is not taken,
// even if its first part is a valid document. Nevertheless, write another file beside it and rename that: a
// writer who pauses is not seen. While a file changes, the source returns what it has read before. The first
// look waits.
func File(path string) func(context.Context) ([]byte, error) {
	return (&file{path: path}).load
}

type file struct {
	path string

	mu       sync.Mutex  // guards the fields below
	seen     os.FileInfo // by the last look
	since    time.Time   // when it was first seen so
	read     os.FileInfo // of document
	document []byte
}

func (f *file) load(ctx context.Context) ([]byte, error) {
	for {
		if document, found, err := f.look(); found || err != nil {
			return document, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s changes all the time: %w", f.path, ctx.Err())
		case <-time.After(settle / 5):
		}
	}
}

// look returns what the file has, or what it had before it began to change. If that was never read, it has found nothing.
func (f *file) look() (document []byte, found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, false, err
	case !info.Mode().IsRegular():
		return nil, false, fmt.Errorf("%s is not a regular file", f.path)
	case info.Size() > maxDocument:
		return nil, false, fmt.Errorf("%s has %d bytes, and %d are the most", f.path, info.Size(), maxDocument)
	case !unchanged(f.seen, info):
		f.seen, f.since = info, time.Now()
	}
	if !unchanged(f.read, info) && max(time.Since(info.ModTime()), time.Since(f.since)) >= settle {
		if err := f.take(info); err != nil {
			return nil, false, err
		}
	}
	return f.document, f.read != nil, nil
}

// unchanged reports whether a file is as it was. A file that was renamed to the path is another one.
func unchanged(was, is os.FileInfo) bool {
	return was != nil && os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}

// take reads the file, unless it changes meanwhile.
func (f *file) take(info os.FileInfo) error {
	open, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer open.Close()
	var document bytes.Buffer
	_, err = io.Copy(&document, io.LimitReader(open, maxDocument))
	after, errStat := open.Stat()
	if err = errors.Join(err, errStat); err == nil && unchanged(info, after) {
		f.read, f.document = info, document.Bytes()
	}
	return err
}
