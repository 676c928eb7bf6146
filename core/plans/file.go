package plans

// A file as a source of documents.

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
	settle = 500 * time.Millisecond // for how long a file must be the same before it counts
	old    = time.Minute            // since when it has not been modified, if it counts at once; a file server's clock may be slow
)

// File returns a source for [Plans.Follow] that reads a file of at most 64 MiB. Several Plans may
// follow it.
//
// The source reads the whole file each time, so it notices a change that keeps the size and the
// time of modification. A new content counts when the file has not changed for half a second, or
// was last modified more than a minute ago. So a half-written file is not taken, even if its first
// part is a valid document. While a file changes, the source returns the last content. The first
// call waits.
//
// All the same, write another file beside it and rename that, because the source cannot notice a
// writer that pauses.
//
// Kubernetes does not update a file that is mounted with subPath, and no program can notice that.
// Mount the folder of the ConfigMap, and give the path of the file in it.
func File(path string) func(context.Context) ([]byte, error) {
	return (&file{path: path}).load
}

type file struct {
	path string

	mu     sync.Mutex // guards the fields below
	seen   content    // by the last look
	since  time.Time  // when it was first seen so
	counts content    // its text is nil if there is none yet
}

// A content is what a file has, and what tells that it has been written meanwhile.
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

// look returns the document that counts, and whether it is what the file has.
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

// same reports whether a file is as it was. A file that was renamed to the path is another one.
func (c content) same(now content) bool {
	return c.info != nil && os.SameFile(c.info, now.info) && c.info.ModTime().Equal(now.info.ModTime()) && bytes.Equal(c.text, now.text)
}

// read reads a file. The information is of before, so what is written meanwhile makes the next one differ.
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
