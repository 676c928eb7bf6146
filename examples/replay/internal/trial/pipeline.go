package trial

// From blocks to shards. One goroutine reads blocks, several parse them, one puts them in order,
// and each shard replays its own users.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
)

type pipeline struct {
	options Options
	routes  *route.Routes
	actions []string
	seed    maphash.Seed
	shards  []*shard

	blocks  chan *block // to be used again
	learned *line.Reader
	sums    sums // of all blocks
	notes   []string
	damage  error
}

// A block has some lines, and then their records.
type block struct {
	buf     []byte
	in      source.Block
	done    chan struct{}
	pending atomic.Int32 // shards that are not done with it

	sums
	before  int64 // the newest instant of all blocks before
	names   []byte
	records [][]record // by shard
}

type sums struct {
	lines    int64
	outcomes [line.Outcomes]int64
	examples [line.Outcomes]example // the first line of each
	newest   int64                  // the newest instant in the log
	first    int64                  // the oldest one of the first lines
	last     int64                  // that of the last line
	back     int64                  // lines that are more than an hour before the one above
	falls    int64                  // lines that are before the one above
	zone     line.Instant           // the first one with an offset
	unitless int64                  // requests whose duration has no unit
	named    int64                  // requests whose user is to be an address, and is none
	zoneless int64                  // times without a zone

	noRoute    found // requests that no route matches, but for those that a ServeMux redirects
	redirected found
	probes     found // requests of health checks that are replayed
}

// A found is how many requests are of some kind, and the first one.
type found struct {
	n     int64
	first example
}

// add adds those of the next block.
func (f *found) add(g found) {
	if f.n == 0 {
		f.first = g.first
	}
	f.n += g.n
}

// An example is a line, and where it is.
type example struct {
	name string
	line int64
	text []byte
}

// A record is a line that is a request.
type record struct {
	at     int64  // its start
	end    int64  // the instant in the log
	newest int64  // of the block up to this line
	id     uint64 // a hash of the user id behind the user; 0: none
	name   uint32 // the index of the user in names
	length uint32
	cost   uint32
	action uint16
	kind   kind
	probe  bool // of a health check
}

type kind uint8

// What becomes of a request. Only the first shard has those that are left out.
const (
	counted kind = iota
	unrouted
	anonymous
)

const never = math.MinInt64 / 2 // before any instant

func newPipeline(o Options, r *route.Routes, actions []string) *pipeline {
	p := &pipeline{options: o, routes: r, actions: actions, seed: maphash.MakeSeed()}
	p.sums.newest, p.sums.first, p.sums.last = never, never, never
	for range min(runtime.GOMAXPROCS(0), 16) {
		p.shards = append(p.shards, newShard(actions, &o))
	}
	return p
}

// run reads the whole log. When it returns all of its goroutines have ended.
func (p *pipeline) run(ctx context.Context, logs []source.Log) error {
	n := len(p.shards)
	p.blocks = make(chan *block, 3*n+2)
	for range cap(p.blocks) {
		p.blocks <- &block{done: make(chan struct{}, 1), records: make([][]record, n)}
	}
	s := p.source(logs)
	first := <-p.blocks
	first.buf = make([]byte, source.BlockSize)
	var err error
	if first.in, err = s.Next(ctx, first.buf); err != nil {
		return err
	}
	p.learned = p.reader()
	p.learned.Header(first.in.Header)
	p.notes = p.learned.Learn(first.in.Text)

	parse, ordered := make(chan *block, n), make(chan *block, cap(p.blocks))
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			w := p.parser()
			for b := range parse {
				w.block(b)
				b.done <- struct{}{}
			}
		})
	}
	feeds := make([]chan *block, n)
	for i := range feeds {
		feeds[i] = make(chan *block, cap(p.blocks))
		wait.Go(func() { p.shards[i].run(p, feeds[i], i) })
	}
	wait.Go(func() { p.order(ordered, feeds) })
	err = p.read(ctx, s, first, parse, ordered)
	close(parse)
	close(ordered)
	wait.Wait()
	for _, s := range p.shards {
		if err == nil {
			err = s.err
		}
	}
	return err
}

func (p *pipeline) reader() *line.Reader {
	r, _ := line.New(p.options.Line) // New has tried it
	return r
}

// source reads the logs, and puts several in order.
func (p *pipeline) source(logs []source.Log) *source.Source {
	r := p.reader()
	return source.New(func(header, text []byte) (int64, bool) {
		var q line.Request
		r.Header(header)
		ok := r.Read(text, &q) == line.IsRequest
		return q.End, ok
	}, logs...)
}

func (p *pipeline) read(ctx context.Context, s *source.Source, b *block, parse, ordered chan<- *block) (err error) {
	for len(b.in.Text) > 0 || b.in.Long > 0 {
		parse <- b
		ordered <- b
		if b = <-p.blocks; b.buf == nil {
			b.buf = make([]byte, source.BlockSize)
		}
		if b.in, err = s.Next(ctx, b.buf); err != nil {
			return err
		}
	}
	p.damage = s.Damage
	return nil
}

// order passes the blocks on as they were read, each with the newest instant before it.
func (p *pipeline) order(ordered <-chan *block, feeds []chan *block) {
	for b := range ordered {
		<-b.done
		before := p.sums.newest
		p.sums.add(&b.sums)
		b.before, b.zone, b.first = before, p.sums.zone, p.sums.first
		b.pending.Store(int32(len(feeds)))
		for _, feed := range feeds {
			feed <- b
		}
	}
	for _, feed := range feeds {
		close(feed)
	}
}

// add adds the sums of the next block.
func (s *sums) add(b *sums) {
	s.lines += b.lines
	for i, n := range b.outcomes {
		if s.outcomes[i] == 0 {
			s.examples[i] = b.examples[i]
		}
		s.outcomes[i] += n
	}
	if !s.zone.Zoned {
		s.zone = b.zone
	}
	if s.first == never {
		s.first = b.first
	}
	s.newest = max(s.newest, b.newest)
	s.last = b.last
	s.back, s.falls = s.back+b.back, s.falls+b.falls
	s.unitless, s.named, s.zoneless = s.unitless+b.unitless, s.named+b.named, s.zoneless+b.zoneless
	s.noRoute.add(b.noRoute)
	s.redirected.add(b.redirected)
	s.probes.add(b.probes)
}

func (p *pipeline) release(b *block) {
	if b.pending.Add(-1) == 0 {
		p.blocks <- b
	}
}

// A parser parses the lines of blocks.
type parser struct {
	*pipeline
	reader *line.Reader
	routes *route.Routes
}

func (p *pipeline) parser() *parser {
	w := &parser{pipeline: p, reader: p.reader(), routes: p.routes.Clone()}
	w.reader.As(p.learned)
	return w
}

func (w *parser) block(b *block) {
	b.sums, b.names = sums{newest: never, first: never, last: never}, b.names[:0]
	for i := range b.records {
		b.records[i] = b.records[i][:0]
	}
	if b.in.Long > 0 {
		w.skip(b, line.TooLong, nil, b.in.Long)
		b.lines = b.in.Long
	}
	w.reader.Header(b.in.Header)
	for text := b.in.Text; len(text) > 0; {
		one := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			one, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		b.lines++
		var r line.Request
		if o := w.reader.Read(one, &r); o != line.IsRequest {
			w.skip(b, o, one, 1)
			continue
		}
		w.record(b, &r)
	}
	if n := w.reader.Open(); n > 0 {
		w.skip(b, line.Broken, nil, n)
	}
}

// longestExample is how much of a line is shown.
const longestExample = 300

func (w *parser) skip(b *block, o line.Outcome, text []byte, n int64) {
	if b.outcomes[o] == 0 {
		b.examples[o] = example{b.in.Name, b.in.Line + b.lines - b.in.Long, bytes.Clone(text[:min(len(text), longestExample)])}
	}
	b.outcomes[o] += n
}

func (w *parser) record(b *block, r *line.Request) {
	switch {
	case b.last != never && r.End < b.last-hour:
		b.back++
		b.falls++
	case r.End < b.last:
		b.falls++
	}
	b.newest, b.last = max(b.newest, r.End), r.End
	if b.first == never || r.End < b.first {
		b.first = r.End
	}
	if r.Zoned && !b.zone.Zoned {
		b.zone = r.Instant
	}
	if r.Unitless {
		b.unitless++
	}
	if r.Named {
		b.named++
	}
	if r.Zoneless() {
		b.zoneless++
	}
	rec := record{at: r.At, end: r.End, newest: b.newest, cost: r.Cost}
	shard := 0
	action := w.routes.Action(r.Method, r.Path)
	switch {
	case action < 0:
		rec.kind = unrouted
		if action == route.Redirected {
			b.found(&b.redirected, r)
		} else {
			b.found(&b.noRoute, r)
		}
	case len(r.User) == 0:
		rec.kind, rec.action = anonymous, uint16(action)
	default:
		user := short(r.User)
		rec.action, rec.name, rec.length = uint16(action), uint32(len(b.names)), uint32(len(user))
		if rec.probe = line.IsProbe(r.Path); rec.probe {
			b.found(&b.probes, r)
		}
		b.names = append(b.names, user...)
		if len(r.ID) > 0 {
			rec.id = maphash.Bytes(w.seed, r.ID) | 1
		}
		if n := len(b.records); n > 1 {
			shard = int(maphash.Bytes(w.seed, user) % uint64(n))
		}
	}
	b.records[shard] = append(b.records[shard], rec)
}

// found counts a request of some kind.
func (b *block) found(f *found, r *line.Request) {
	if f.n == 0 {
		text := fmt.Appendf(nil, "%s %s", r.Method, r.Path)
		f.first = example{b.in.Name, b.in.Line + b.lines - b.in.Long, text[:min(len(text), longestExample)]}
	}
	f.n++
}

// longestName is the length of the longest name that is kept as it is.
const longestName = 128

// short is a user's name, or of a long one the start and a digest, so that nobody's name takes much memory.
func short(name []byte) []byte {
	if len(name) <= longestName {
		return name
	}
	digest := sha256.Sum256(name)
	return fmt.Appendf(nil, "%s...%x", name[:32], digest[:16])
}

// run takes the shard's part of each block.
func (s *shard) run(p *pipeline, feed <-chan *block, number int) {
	do := func(m uint32, at int64, cost uint32) { s.replay(m, at, cost, p.actions) }
	for b := range feed {
		s.zone = b.zone.Offset
		records := b.records[number]
		for i := range records {
			r := &records[i]
			oldest := max(b.before, r.newest) - hour
			switch {
			case r.end < oldest:
				s.leftOut(r, func(n *report.LeftOut) { n.Late++ })
				continue
			case r.kind == unrouted:
				s.unrouted++
				continue
			case r.kind == anonymous:
				s.leftOut(r, func(n *report.LeftOut) { n.Anonymous++ })
				continue
			case r.at < oldest:
				s.leftOut(r, func(n *report.LeftOut) { n.Long++ })
				continue
			case r.at < b.first-60*second:
				s.early++
			}
			if oldest := max(oldest, 0); oldest/second > s.waiting.oldest {
				s.waiting.release(oldest/second, do)
			}
			m := s.member(b.names[r.name:r.name+r.length], r.action)
			s.behind(s.members[m].user, r.id)
			if !r.probe {
				s.users[s.members[m].user].acts = true
			}
			s.waiting.add(m, r.at, r.cost)
		}
		p.release(b)
	}
	s.waiting.release(s.waiting.oldest+ring, do)
	s.waiting.space = nil
}

// leftOut counts a request that is left out, by its action.
func (s *shard) leftOut(r *record, count func(*report.LeftOut)) {
	if r.kind == unrouted { // and late; its action is not known
		s.unrouted++
		return
	}
	count(&s.left[r.action])
}
