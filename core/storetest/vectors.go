package storetest

import (
	_ "embed"
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

//go:embed testdata/throttle.json
var recorded []byte

// A row is a call of CL.THROTTLE and its reply.
type row struct {
	Seq   string
	T     int64   `json:"t_ns"`
	Args  []int64 // max_burst, count, period in seconds, quantity
	Reply json.RawMessage
	Tat   *int64 `json:"tat_ns"` // the state afterwards; nil if there is none
}

func (r row) quantity() int {
	if len(r.Args) < 4 {
		return 1
	}
	return int(r.Args[3])
}

// Vectors compares core.Throttle with replies that were recorded from redis-cell:
// the verdict, limit, remaining count and whole seconds are equal. In some rows the
// module itself is wrong; they are listed with the reason.
func Vectors(t *testing.T, open func(testing.TB) Fixture) {
	var file struct{ Rows []row }
	if err := json.Unmarshal(recorded, &file); err != nil {
		t.Fatal(err)
	}
	f := open(t)
	f.stands(t)
	why := map[string]map[int]string{}
	for _, e := range exempt {
		if why[e.seq] == nil {
			why[e.seq] = map[int]string{}
		}
		for _, i := range e.rows {
			why[e.seq][i] = e.reason
		}
	}
	f.Advance(100 * time.Hour) // room to step back into
	compared := 0
	for rows := file.Rows; len(rows) > 0; {
		n := slices.IndexFunc(rows, func(r row) bool { return r.Seq != rows[0].Seq })
		if n < 0 {
			n = len(rows)
		}
		seq := rows[0].Seq
		t.Run(seq, func(t *testing.T) {
			compared += replay(t, f, rows[:n], why[seq])
		})
		delete(why, seq)
		rows = rows[n:]
	}
	for seq, rows := range why {
		t.Errorf("exempt rows of %s are not there: %v", seq, rows)
	}
	if compared < comparedRows && !t.Failed() {
		t.Errorf("%d rows were compared, not %d", compared, comparedRows)
	}
}

// replay plays one sequence and returns how many rows it compared.
func replay(t *testing.T, f Fixture, rows []row, exempt map[int]string) (compared int) {
	for i := range exempt {
		if i < 0 || i >= len(rows) {
			t.Errorf("exempt row %d is not there: the sequence has %d", i, len(rows))
		}
	}
	now := rows[0].T / 1000
	for i, r := range rows {
		f.Advance(us(r.T/1000 - now))
		now = r.T / 1000
		d, err := r.play(t, f)
		var want [5]int64
		if err == nil {
			err = json.Unmarshal(r.Reply, &want) // fails if the module gave an error
		}
		switch {
		case exempt[i] != "":
			if err == nil && d.Cell() == want {
				t.Errorf("row %d need not be exempt", i)
			}
			restore(t, f, r, now)
			continue
		case err != nil:
			t.Fatalf("row %d: %v", i, err)
		case d.Cell() != want:
			t.Errorf("row %d, %v at %d us: %v, want %v (%s)", i, r.Args, now, d.Cell(), want, show(d))
		}
		compared++
	}
	return compared
}

func (r row) limit() core.Limit {
	return core.Throttle(int(r.Args[0]), core.Per(int(r.Args[1]), time.Duration(r.Args[2])*time.Second))
}

// play makes the row's call.
func (r row) play(t *testing.T, f Fixture) (core.Decision, error) {
	l, err := core.New(f.Store, r.limit())
	if err != nil {
		return core.Decision{}, err
	}
	return l.AllowN(t.Context(), r.Seq, "throttle", r.quantity())
}

// restore brings the state to what was recorded after a row that was not compared: to
// the microsecond, by an action that was made when it must have been. A debt above the
// quota is restored as one of the quota.
func restore(t *testing.T, f Fixture, r row, now int64) {
	l, err := core.New(f.Store, r.limit())
	if err != nil {
		return // it has no state
	}
	if err := l.Reset(t.Context(), r.Seq, "throttle"); err != nil {
		t.Fatal(err)
	}
	if r.Tat == nil || *r.Tat <= now*1000 {
		return
	}
	debt, emission := (*r.Tat+999)/1000-now, big.NewRat(r.Args[2]*1_000_000, r.Args[1])
	units := min(ceil(new(big.Rat).Quo(whole(debt), emission)), r.Args[0]+1)
	early := max(0, floor(new(big.Rat).Mul(whole(units), emission))-debt)
	f.Advance(us(-early))
	d, err := l.AllowN(t.Context(), r.Seq, "throttle", int(units))
	f.Advance(us(early))
	if err != nil || !d.Allowed {
		t.Fatalf("restoring %d us: %s, %v", debt, show(d), err)
	}
}

// comparedRows is how many of the recorded rows are compared.
const comparedRows = 773

// exempt are the rows in which Throttle differs on purpose, since it gives the exact
// value. After each of them the sequence goes on from the recorded state.
var exempt = []struct {
	seq    string
	rows   []int
	reason string
}{
	{"sub-ms-retry", []int{2, 3, 4}, restDropped},
	{"rand-16", []int{23, 24}, restDropped},
	{"rand-40", []int{3, 4, 20}, restDropped},
	{"6000", []int{0}, fineInterval},
	{"600k", []int{0}, fineInterval},
	{"2M", []int{0}, fineInterval},
	{"1G", []int{0}, fineInterval},
	{"seven-per-s", []int{8, 9}, boundary},
	{"rand-18", []int{2}, boundary},
	{"rand-24", []int{6}, boundary},
	{"rand-44", []int{1, 10, 11, 24}, boundary},
	{"refund", []int{1, 2}, "a negative quantity: ours is an error"},
	{"clock-back", []int{1, 2}, "the clock stepped back: ours clamps the debt to one full quota"},
	{"limit-zero", []int{0, 1}, illegal},
	{"2G", []int{0}, illegal},
	{"zero-count", []int{0}, illegal},
	{"zero-period", []int{0}, illegal},
	{"qty-overflow", []int{1}, "the module wraps around and refunds"},
}

const (
	restDropped  = "the module drops a rest of less than a millisecond"
	fineInterval = "the module is inexact if the interval is less than a millisecond"
	boundary     = "within 2 us of a boundary: the module's interval is in truncated nanoseconds, and its ratio in truncated microseconds"
	illegal      = "the limit is out of bounds: ours is an error of New"
)
