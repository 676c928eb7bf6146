package source

import (
	"bytes"
	"slices"
	"testing"
)

// Blocks have whole lines, and what is too long is left out and counted.
func TestBlocks(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, BlockSize)
	tests := []struct {
		name  string
		lines [][]byte
		end   bool // the last line has its newline
		long  int64
	}{
		{"empty", nil, true, 0},
		{"one line without its newline", [][]byte{[]byte("a")}, false, 0},
		{"more than a block", slices.Repeat([][]byte{long[:1000]}, 3000), true, 0},
		{"the longest that fits", [][]byte{long[:BlockSize-1], []byte("a")}, true, 0},
		{"one byte longer", [][]byte{long, []byte("a")}, true, 1},
		{"much longer, in the middle", [][]byte{[]byte("a"), slices.Concat(long, long, long, long[:7]), []byte("b")}, false, 1},
		{"two", [][]byte{append(long, 'x'), slices.Concat(long, long)}, true, 2},
		{"at the end", [][]byte{[]byte("a"), slices.Concat(long, long)}, false, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log := bytes.Join(test.lines, []byte{'\n'})
			if test.end && len(log) > 0 {
				log = append(log, '\n')
			}
			var want []byte
			for i, l := range test.lines {
				if len(l) < BlockSize {
					want = append(want, l...)
					if i < len(test.lines)-1 || test.end {
						want = append(want, '\n')
					}
				}
			}
			for _, r := range []interface {
				Read([]byte) (int, error)
			}{bytes.NewReader(log), &dribble{log}} {
				s := New(nil, Log{Name: "log", Reader: r})
				var got []byte
				var long int64
				buf := make([]byte, BlockSize)
				for {
					b, err := s.Next(t.Context(), buf)
					if err != nil {
						t.Fatal(err)
					}
					long += b.Long
					if len(b.Text) == 0 && b.Long == 0 {
						break
					}
					got = append(got, b.Text...)
				}
				if !bytes.Equal(got, want) || long != test.long {
					t.Errorf("%d bytes and %d long lines, want %d and %d", len(got), long, len(want), test.long)
				}
			}
		})
	}
}

// A block knows the last line #Fields: before it, also one behind a byte order mark.
func TestHeaders(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for text, want := range map[string]string{
		"#Fields: a\n1\n":                                 "#Fields: a",
		"#Fields: a\r\n1\n#Fields: b\r\n":                 "#Fields: b",
		bom + "#Fields: a\n1\n":                           "#Fields: a",
		bom + "#Fields: a\n" + bom + "#Fields: b\n":       "#Fields: b",
		"#Fields: a\n/?#Fields: b\n1 " + bom + "#Fields:": "#Fields: a",
		bom + "#Version: 1\n#Fields: a":                   "#Fields: a",
		"1\n2\n":                                          "",
	} {
		f := new(file)
		f.block([]byte(text))
		if got := string(f.block(nil).Header); got != want {
			t.Errorf("%q has the header %q, want %q", text, got, want)
		}
	}
}

// dribble gives a few bytes at a time.
type dribble struct{ rest []byte }

func (d *dribble) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), 4999)], d.rest)
	d.rest = d.rest[n:]
	if n == 0 {
		return bytes.NewReader(nil).Read(b)
	}
	return n, nil
}
