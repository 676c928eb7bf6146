package trial_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/examples/replay/internal/trial"
)

// A made stream is a log of so many lines, which is made as it is read: requests a second apart
// by 1/rate, nine in ten of the lines by a tenth of the users.
type stream struct {
	lines, users, rate int
	format             string

	line   int
	random *rand.Rand
	buf    bytes.Buffer
}

func newStream(lines, users, rate int, format string) *stream {
	return &stream{lines: lines, users: users, rate: rate, format: format, random: rand.New(rand.NewPCG(1, 2))}
}

func (s *stream) Read(b []byte) (int, error) {
	for s.buf.Len() < 1<<16 && s.line < s.lines {
		u := s.random.IntN(s.users)
		if s.random.IntN(10) > 0 {
			u = u/10 + 1
		}
		at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s.line) * time.Second / time.Duration(s.rate))
		at = at.Add(-time.Duration(s.random.IntN(5000)) * time.Millisecond)
		address := fmt.Sprintf("10.%d.%d.%d", u>>16, u>>8&255, u&255)
		path := fmt.Sprintf("/posts/%d/replies", s.random.IntN(100_000))
		if s.format == "combined" {
			fmt.Fprintf(&s.buf, "%s - - [%s] \"POST %s HTTP/1.1\" 201 %d \"https://example.org/\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36\"\n",
				address, at.Format("02/Jan/2006:15:04:05 -0700"), path, s.random.IntN(100_000))
		} else {
			fmt.Fprintf(&s.buf, `{"time":"%s","level":"INFO","msg":"request","method":"POST","path":"%s","status":201,"duration":%d,"remote_addr":"%s","agent":"Mozilla/5.0 (X11; Linux x86_64)"}`+"\n",
				at.Format("2006-01-02T15:04:05.000000Z"), path, s.random.IntN(1_000_000_000), address)
		}
		s.line++
	}
	if s.buf.Len() == 0 {
		return 0, io.EOF
	}
	return s.buf.Read(b)
}

func BenchmarkRun(b *testing.B) {
	const lines = 1_000_000
	for _, format := range []string{"combined", "json"} {
		log, err := io.ReadAll(newStream(lines, 100_000, 100, format))
		if err != nil {
			b.Fatal(err)
		}
		for _, limits := range []int{0, 1} {
			b.Run(fmt.Sprintf("%s/limits=%d", format, limits), func(b *testing.B) {
				o := trial.Options{Routes: forum}
				if limits > 0 {
					o.Candidates = []trial.Candidate{{Action: "reply", Limits: []core.Limit{core.SlidingWindow(5, time.Minute)}}}
				}
				b.SetBytes(int64(len(log)))
				b.ReportAllocs()
				for b.Loop() {
					r, err := replay(context.Background(), bytes.NewReader(log), o)
					if err != nil || r.Requests != lines {
						b.Fatal(r, err)
					}
				}
				b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
				runtime.GC()
			})
		}
	}
}
