// Package source reads logs in blocks of whole lines. Several logs become one, in the order of time.
package source

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// BlockSize is how many bytes are parsed at a time. A line of so many bytes is skipped.
const BlockSize = 1 << 20

// ahead is how far, in microseconds, one of several logs may be ahead of the others.
const ahead = 30 * 60 * 1_000_000

// A Log is one of the logs, and may be compressed with gzip as a whole or in parts.
type Log struct {
	Name string
	io.Reader
}

// A Block has whole lines. Only the last line of a log may lack its newline.
type Block struct {
	Text   []byte
	Name   string // of the log
	Line   int64  // lines of the log before the block
	Long   int64  // lines before the block that were too long
	Header []byte // the last line #Fields: before the block
}

// A Source reads blocks.
type Source struct {
	files []*file
	at    func(header, line []byte) (at int64, ok bool)

	Damage error // what is wrong with a gzip stream; it was read up to there
}

// New makes a source of logs. at is the instant of a line, by which several logs are merged.
func New(at func(header, line []byte) (int64, bool), logs ...Log) *Source {
	s := &Source{at: at}
	for _, l := range logs {
		s.files = append(s.files, newFile(l))
	}
	return s
}

// Next reads a block into buf, of BlockSize bytes. A block without a line is the end.
func (s *Source) Next(ctx context.Context, buf []byte) (Block, error) {
	if len(s.files) == 1 {
		f := s.files[0]
		text, err := f.next(ctx, buf)
		if err != nil {
			return Block{}, err
		}
		s.damaged(f)
		return f.block(text), nil
	}
	for {
		f, limit, err := s.first(ctx)
		if err != nil || f == nil {
			return Block{}, err
		}
		n := len(f.held)
		if limit < never {
			n = s.until(f, limit)
		}
		text := buf[:copy(buf, f.held[:n])]
		f.held = f.held[n:]
		if b := f.block(text); len(text) > 0 || b.Long > 0 {
			return b, nil
		}
	}
}

func (s *Source) damaged(f *file) {
	if s.Damage == nil && f.damage != nil {
		s.Damage = fmt.Errorf("%s: %w", f.name, f.damage)
	}
}

const never = 1<<63 - 1

// first is the log whose next line is the oldest, and up to when its lines may be taken.
func (s *Source) first(ctx context.Context) (oldest *file, limit int64, err error) {
	limit = never
	open := s.files[:0]
	for _, f := range s.files {
		if len(f.held) == 0 {
			if f.own == nil {
				f.own = make([]byte, BlockSize)
			}
			if f.held, err = f.next(ctx, f.own); err != nil {
				return nil, 0, err
			}
			s.damaged(f)
			if len(f.held) == 0 && f.long == 0 {
				continue
			}
		}
		open = append(open, f)
		if at, ok := s.from(f, 0); ok {
			f.from = at
		}
		switch {
		case oldest == nil:
			oldest = f
		case f.from < oldest.from:
			limit = min(limit, oldest.from+ahead)
			oldest = f
		default:
			limit = min(limit, f.from+ahead)
		}
	}
	s.files = open
	if len(open) == 1 && len(open[0].held) > 0 {
		limit = never
	}
	return oldest, limit, nil
}

// from is the instant of the first line of those held, from offset i on, that has one.
func (s *Source) from(f *file, i int) (at int64, ok bool) {
	header := f.header
	for tries := 0; i < len(f.held) && tries < 50; tries++ {
		end := bytes.IndexByte(f.held[i:], '\n') + 1
		if end == 0 {
			end = len(f.held) - i
		}
		line := bytes.TrimRight(f.held[i:i+end], "\r\n")
		if bare := bytes.TrimPrefix(line, mark); bytes.HasPrefix(bare, fieldsLine) {
			header = bare
		}
		if at, ok = s.at(header, line); ok {
			return at, true
		}
		i += end
	}
	return 0, false
}

// until is how many bytes of the lines held are of instants up to limit, if they are in order. It is at least a
// line.
func (s *Source) until(f *file, limit int64) int {
	if at, ok := s.from(f, bytes.LastIndexByte(f.held[:len(f.held)-1], '\n')+1); ok && at <= limit {
		return len(f.held)
	}
	low, high := 0, len(f.held) // a line starts at both
	for high-low > 1 {
		middle := low + (high-low)/2
		i := bytes.IndexByte(f.held[middle:high], '\n')
		if i < 0 || middle+i+1 == high {
			if i = bytes.LastIndexByte(f.held[low:middle], '\n'); i < 0 {
				break // it is one line
			}
			middle = low + i + 1
		} else {
			middle += i + 1
		}
		if at, ok := s.from(f, middle); ok && at > limit {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

var (
	fieldsLine = []byte("#Fields:")
	mark       = []byte("\xef\xbb\xbf") // a byte order mark, which a line may have in front
)

// A file is one log.
type file struct {
	name   string
	stream *stream
	rest   []byte // the start of a line of which the block before had no end
	inLong bool   // within a line that is too long
	long   int64  // lines that were too long
	ended  error
	damage error

	lines  int64 // that were given
	header []byte

	own, held []byte // of one of several logs: lines that wait for the others
	from      int64
}

func newFile(l Log) *file { return &file{name: l.Name, stream: newStream(l.Reader)} }

// block is a block of the next lines.
func (f *file) block(text []byte) Block {
	b := Block{Text: text, Name: f.name, Line: f.lines + f.long, Long: f.long, Header: f.header}
	f.lines += f.long + int64(bytes.Count(text, []byte{'\n'}))
	f.long = 0
	if bytes.Contains(text, fieldsLine) { // LastIndex alone is slow
		if line := lastHeader(text); line != nil {
			f.header = bytes.Clone(line)
		}
	}
	return b
}

// lastHeader is the last line #Fields: of a text.
func lastHeader(text []byte) []byte {
	for before := text; ; {
		i := bytes.LastIndex(before, fieldsLine)
		if i < 0 {
			return nil
		}
		if before = bytes.TrimSuffix(before[:i], mark); len(before) == 0 || before[len(before)-1] == '\n' {
			line, _, _ := bytes.Cut(text[i:], []byte{'\n'})
			return bytes.TrimRight(line, "\r")
		}
	}
}

// next reads whole lines into buf, of BlockSize bytes. No lines are the end.
func (f *file) next(ctx context.Context, buf []byte) (text []byte, err error) {
	n := copy(buf, f.rest)
	f.rest = f.rest[:0]
	for f.ended == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := f.stream.Read(buf[n:])
		n += got
		if err != nil {
			f.ended, f.damage = err, f.stream.damage
		}
		if f.inLong {
			if n = f.skipLong(buf[:n]); f.inLong {
				continue
			}
		}
		if n < len(buf) {
			continue
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			f.rest = append(f.rest, buf[i+1:]...)
			return buf[:i+1], nil
		}
		f.inLong, n = true, 0
		f.long++
	}
	if f.ended != io.EOF {
		return nil, f.ended
	}
	return buf[:n], nil
}

// skipLong drops what belongs to the line that is too long, and returns how many bytes are left.
func (f *file) skipLong(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0
	}
	f.inLong = false
	return copy(b, b[i+1:])
}
