// Package source reads a log in blocks of whole lines.
package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
)

// BlockSize is how many bytes are parsed at a time. A line of so many bytes is skipped.
const BlockSize = 1 << 20

// A Source reads blocks. It keeps the error of the reader below a gzip stream, which is no damage
// of the stream.
type Source struct {
	raw    io.Reader
	failed error // of raw, io.EOF apart

	lines  io.Reader
	zipped bool
	rest   []byte // the start of a line of which the block before had no end
	inLong bool   // within a line that is too long
	ended  error

	Long   int64 // lines that were too long
	Damage error // what is wrong with a gzip stream; it was read up to there
}

func (s *Source) Read(b []byte) (int, error) {
	n, err := s.raw.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// New makes a source of a log, which may be compressed with gzip.
func New(log io.Reader) *Source {
	s := &Source{raw: log}
	buffered := bufio.NewReaderSize(s, 1<<16)
	s.lines = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		s.zipped = true
		z, err := gzip.NewReader(buffered)
		if err != nil {
			s.end(err)
		} else {
			s.lines = z
		}
	}
	return s
}

func (s *Source) end(err error) {
	s.ended = err
	if s.zipped && s.failed == nil && err != io.EOF {
		s.Damage, s.ended = err, io.EOF
	}
}

// Next reads into buf, of BlockSize bytes, and returns whole lines of it. Only the last line of all may
// lack its newline. No lines are the end.
func (s *Source) Next(ctx context.Context, buf []byte) (text []byte, err error) {
	n := copy(buf, s.rest)
	s.rest = s.rest[:0]
	for s.ended == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := s.lines.Read(buf[n:])
		n += got
		if err != nil {
			s.end(err)
		}
		if s.inLong {
			if n = s.skipLong(buf[:n]); s.inLong {
				continue
			}
		}
		if n < len(buf) {
			continue
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			s.rest = append(s.rest, buf[i+1:]...)
			return buf[:i+1], nil
		}
		s.inLong, n = true, 0
		s.Long++
	}
	if s.ended != io.EOF {
		return nil, s.ended
	}
	return buf[:n], nil
}

// skipLong drops what belongs to the line that is too long, and returns how many bytes are left.
func (s *Source) skipLong(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0
	}
	s.inLong = false
	return copy(b, b[i+1:])
}
