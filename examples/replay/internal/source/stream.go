package source

// The text of a log, out of what encloses it.

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// A stream reads the text of a log. Parts of it may be compressed with gzip, as in cat access.log access.log.1.gz.
// It drops the zero bytes that a rotation by copying leaves in a file.
type stream struct {
	raw    io.Reader
	failed error // of raw, io.EOF apart

	in      *bufio.Reader
	zipped  *gzip.Reader // nil: the part is not compressed
	spare   *gzip.Reader
	started bool
	begins  bool  // a part may begin here
	damage  error // of a gzip stream
}

func newStream(r io.Reader) *stream {
	s := &stream{begins: true}
	s.raw = r
	s.in = bufio.NewReaderSize(rawReader{s}, 1<<16)
	return s
}

// A rawReader keeps the error of the reader below a gzip stream, which is no damage of the stream.
type rawReader struct{ *stream }

func (r rawReader) Read(b []byte) (int, error) {
	n, err := r.raw.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
	}
	return n, err
}

var gzipMagic = []byte{0x1f, 0x8b}

func (s *stream) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil {
		switch {
		case s.begins && s.zipped == nil:
			err = s.begin()
		case s.zipped != nil:
			if n, err = s.zipped.Read(b); err == io.EOF {
				s.zipped, s.begins, err = nil, true, nil
			}
			err = s.end(err)
		default:
			n, err = s.plain(b)
		}
		if n > 0 && bytes.IndexByte(b[:n], 0) >= 0 {
			n = withoutZeros(b[:n])
		}
	}
	return n, err
}

// begin finds out what comes.
func (s *stream) begin() error {
	s.begins = false
	head, err := s.in.Peek(64)
	if len(head) == 0 {
		return s.end(err)
	}
	if !s.started {
		s.started = true
		if err := foreign(head); err != nil {
			return err
		}
	}
	if !bytes.HasPrefix(head, gzipMagic) {
		return nil
	}
	if s.spare == nil {
		s.spare = new(gzip.Reader)
	}
	if err := s.spare.Reset(s.in); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		s.zipped = s.spare
		return s.end(err)
	}
	s.spare.Multistream(false)
	s.zipped, s.begins = s.spare, true
	return nil
}

// plain reads up to where a compressed part may begin.
func (s *stream) plain(b []byte) (n int, err error) {
	if _, err := s.in.Peek(1); err != nil {
		return 0, s.end(err)
	}
	text, _ := s.in.Peek(min(len(b), s.in.Buffered()))
	for i := 0; ; {
		j := bytes.IndexByte(text[i:], gzipMagic[0])
		if j < 0 {
			break
		}
		if i += j; i > 0 && text[i-1] == '\n' {
			text = text[:i]
			break
		}
		i++
	}
	n = copy(b, text)
	_, _ = s.in.Discard(n)
	s.begins = text[n-1] == '\n'
	return n, nil
}

// end is the error at the end of a part.
func (s *stream) end(err error) error {
	if err == nil || err == io.EOF || s.failed != nil || s.zipped == nil {
		return err
	}
	s.damage = err
	return io.EOF
}

// withoutZeros drops zero bytes, and returns how many bytes are left.
func withoutZeros(b []byte) int {
	n := 0
	for _, c := range b {
		if c != 0 {
			b[n] = c
			n++
		}
	}
	return n
}

// foreign returns an error if a log is no text that can be read, by its first bytes.
func foreign(head []byte) error {
	for _, f := range []struct{ magic, name, command string }{
		{"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"}, {"BZh", "bzip2", "bzip2 -dc"}, {"\xfd7zXZ\x00", "xz", "xz -dc"}, {"PK\x03\x04", "zip", "unzip -p"}, {"\x04\x22\x4d\x18", "lz4", "lz4 -dc"},
	} {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return fmt.Errorf("the log is compressed with %s; unpack it, as in %s FILE | replay -", f.name, f.command)
		}
	}
	odd, even := 0, 0
	for i, c := range head {
		if c == 0 && i%2 == 0 {
			even++
		} else if c == 0 {
			odd++
		}
	}
	wide := bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff"))
	if wide || len(head) > 8 && max(odd, even)*3 > len(head) && min(odd, even) == 0 {
		return errors.New("the log is in UTF-16; convert it, as in iconv -f UTF-16 -t UTF-8 FILE | replay -")
	}
	return nil
}
