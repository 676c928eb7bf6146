package trial

// From blocks to shards. One goroutine reads blocks, several parse them, one puts them in order,
// and each shard replays its own users.

import (
	"bytes"
	"context"
	"hash/maphash"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/route"
	"github.com/tailcut/tailcut/examples/replay/internal/source"
)

type pipeline struct {
	options Options
	routes  *route.Routes
	actions []string
	seed    maphash.Seed
	shards  []*shard

	blocks chan *block // to be used again
	sums   sums        // of all blocks
	damage error
}

// A block has some lines, and then their records.
type block struct {
	buf     []byte
	text    []byte // the lines
	done    chan struct{}
	pending atomic.Int32 // shards that are not done with it

	sums
	before  int64 // the newest instant of all blocks before
	names   []byte
	records [][]record // by shard
}

type sums struct {
	lines   int64
	skipped int64
	newest  int64        // the newest instant
	zone    line.Instant // the first one with an offset
}

// A record is a line that is a request.
type record struct {
	at     int64
	newest int64  // of the block up to this line
	id     uint64 // a hash of the user id behind the user; 0: none
	name   uint32 // the index of the user in names
	length uint32
	cost   uint32
	action uint16
}

// These replace the action of requests that are left out, in the first shard's records.
const (
	unrouted  = math.MaxUint16
	anonymous = math.MaxUint16 - 1
)

const never = math.MinInt64 / 2 // before any instant

func newPipeline(o Options, r *route.Routes, actions []string) *pipeline {
	p := &pipeline{options: o, routes: r, actions: actions, seed: maphash.MakeSeed()}
	p.sums.newest = never
	for range min(runtime.GOMAXPROCS(0), 16) {
		p.shards = append(p.shards, newShard(actions, o.Candidates))
	}
	return p
}

// run reads the whole log. When it returns all of its goroutines have ended.
func (p *pipeline) run(ctx context.Context, log io.Reader) error {
	n := len(p.shards)
	p.blocks = make(chan *block, 3*n+2)
	for range cap(p.blocks) {
		p.blocks <- &block{done: make(chan struct{}, 1), records: make([][]record, n)}
	}
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
	err := p.read(ctx, source.New(log), parse, ordered)
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

func (p *pipeline) read(ctx context.Context, s *source.Source, parse, ordered chan<- *block) error {
	for {
		b := <-p.blocks
		if b.buf == nil {
			b.buf = make([]byte, source.BlockSize)
		}
		var err error
		if b.text, err = s.Next(ctx, b.buf); err != nil {
			return err
		}
		b.lines, b.skipped, s.Long = s.Long, s.Long, 0
		if len(b.text) == 0 && b.lines == 0 {
			p.damage = s.Damage
			return nil
		}
		parse <- b
		ordered <- b
	}
}

// order passes the blocks on as they were read, each with the newest instant before it.
func (p *pipeline) order(ordered <-chan *block, feeds []chan *block) {
	sum := &p.sums
	for b := range ordered {
		<-b.done
		sum.lines += b.lines
		sum.skipped += b.skipped
		if !sum.zone.Zoned {
			sum.zone = b.zone
		}
		b.before, b.zone = sum.newest, sum.zone
		sum.newest = max(sum.newest, b.newest)
		b.pending.Store(int32(len(feeds)))
		for _, feed := range feeds {
			feed <- b
		}
	}
	for _, feed := range feeds {
		close(feed)
	}
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
	reader, _ := line.New(p.options.Line) // New has tried it
	return &parser{pipeline: p, reader: reader, routes: p.routes.Clone()}
}

func (w *parser) block(b *block) {
	b.newest, b.zone, b.names = never, line.Instant{}, b.names[:0]
	for i := range b.records {
		b.records[i] = b.records[i][:0]
	}
	for text := b.text; len(text) > 0; {
		one := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			one, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		b.lines++
		var r line.Request
		if !w.reader.Read(bytes.TrimSuffix(one, []byte{'\r'}), &r) {
			b.skipped++
			continue
		}
		w.record(b, &r)
	}
}

func (w *parser) record(b *block, r *line.Request) {
	b.newest = max(b.newest, r.At)
	if r.Zoned && !b.zone.Zoned {
		b.zone = r.Instant
	}
	rec := record{at: r.At, newest: b.newest, cost: r.Cost}
	shard := 0
	switch action := w.routes.Action(r.Method, r.Path); {
	case action == route.None:
		rec.action = unrouted
	case len(r.User) == 0:
		rec.action = anonymous
	default:
		rec.action, rec.name, rec.length = uint16(action), uint32(len(b.names)), uint32(len(r.User))
		b.names = append(b.names, r.User...)
		if len(r.ID) > 0 {
			rec.id = maphash.Bytes(w.seed, r.ID) | 1
		}
		if n := len(b.records); n > 1 {
			shard = int(maphash.Bytes(w.seed, r.User) % uint64(n))
		}
	}
	b.records[shard] = append(b.records[shard], rec)
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
			case r.at < oldest:
				s.late++
			case r.action == unrouted:
				s.unrouted++
			case r.action == anonymous:
				s.anonymous++
			default:
				if oldest := max(oldest, 0); oldest/second > s.waiting.oldest {
					s.waiting.release(oldest/second, do)
					s.sweep(oldest)
				}
				m := s.member(b.names[r.name:r.name+r.length], r.action)
				s.behind(s.members[m].user, r.id)
				s.waiting.add(m, r.at, r.cost)
			}
		}
		p.release(b)
	}
	s.waiting.release(s.waiting.oldest+ring, do)
	s.waiting.space = nil
}
