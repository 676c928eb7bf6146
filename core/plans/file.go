package plans

// File: a source that reads the document from a file.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	settle = 500 * time.Millisecond // how long a file must stay unchanged before its content counts
	old    = time.Minute            // a file that was modified longer ago counts at once; a minute, because a file server's clock may differ
)

// File returns a source for [Plans.Follow] that reads a file of at most 64 MiB. Several Plans may
// follow one source.
//
// The source reads the whole file each time. So it also notices a change that keeps the size and
// the modification time. It returns new content only after the file has not changed for half a
// second. There is one exception: if the modification time is new, but more than a minute ago, the
// source returns the new content at once. While the file goes on changing, the source returns the
// previous content, or waits if there is none. So it usually does not return a half-written file.
// But it may do so if the writer pauses for half a second.
//
// To be safe, write the new content to another file in the same folder, and rename that file.
//
// Kubernetes does not update a file that is mounted with subPath, and a program cannot detect this.
// Mount the folder of the ConfigMap, and pass the path of the file in it.
func File(path string) func(context.Context) ([]byte, error) {
	return (&file{path: path}).load
}

type file struct {
	path string

	mu     sync.Mutex // guards the fields below
	seen   content    // the content at the last look, which does not count yet
	since  time.Time  // when seen was first seen
	counts content    // the content that counts; its text is nil if there is none
}

// A content is a file's text. info tells whether the file was replaced or written again.
type content struct {
	info os.FileInfo
	text []byte
}

func (f *file) load(ctx context.Context) ([]byte, error) {
	for begun := time.Now(); ; {
		document, settled, err := f.look()
		if settled || err != nil || document != nil && time.Since(begun) > settle {
			return document, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s changes all the time: %w", f.path, ctx.Err())
		case <-time.After(settle / 5):
		}
	}
}

// look reads the file. It returns the document that counts, or nil if there is none. settled
// reports whether that document is the file's present content.
func (f *file) look() (document []byte, settled bool, err error) {
	now, err := read(f.path)
	if err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	modified := now.info.ModTime()
	isOld := time.Since(modified) >= old && (f.counts.info == nil || !modified.Equal(f.counts.info.ModTime()))
	switch {
	case f.counts.text != nil && bytes.Equal(f.counts.text, now.text):
		now.text = f.counts.text
	case !f.seen.same(now) && !isOld:
		f.seen, f.since = now, time.Now()
		return f.counts.text, false, nil
	case !isOld && time.Since(f.since) < settle:
		return f.counts.text, false, nil
	}
	f.counts, f.seen = now, content{}
	return now.text, true, nil
}

// same reports whether the file has not changed from c to now. A file that was renamed to the path
// has changed, even if its text is equal.
func (c content) same(now content) bool {
	return c.info != nil && os.SameFile(c.info, now.info) && c.info.ModTime().Equal(now.info.ModTime()) && bytes.Equal(c.text, now.text)
}

// read reads a file. It calls Stat before it reads the text. So if somebody writes to the file in
// between, the next call of Stat shows the change.
func read(path string) (c content, err error) {
	switch c.info, err = os.Stat(path); {
	case err != nil:
		return c, err
	case !c.info.Mode().IsRegular():
		return c, fmt.Errorf("%s is not a regular file", path)
	case c.info.Size() > maxDocument:
		return c, fmt.Errorf("%s has %d bytes, and %d are the most", path, c.info.Size(), maxDocument)
	}
	open, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer open.Close()
	text := bytes.NewBuffer(make([]byte, 0, c.info.Size()+bytes.MinRead))
	_, err = text.ReadFrom(io.LimitReader(open, maxDocument))
	c.text = text.Bytes()
	return c, err
}
