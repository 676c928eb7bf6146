package batch

// How much is sent to a server at a time.

import "time"

const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	perBatch    = time.Millisecond // of the response time, for each batch above fewBatches
	rejoin      = time.Millisecond // at most, the next batch waits for callers who were just answered
	maxWeight   = 2048             // of a batch: it bounds how long Redis is busy
	minWeight   = 64               // that a batch may have, even if it is answered too late
)

// pacing is how many batches of a lane may be under way, how heavy they are, and how far apart they start.
type pacing struct {
	alone    bool          // a batch has one call
	conns    int           // how many the client can use; of an unknown server, as many as there are calls
	timeout  time.Duration // of a call
	response time.Duration // how long an answer takes
	room     int           // weight that a batch may have
	resume   time.Time     // the next batch does not start earlier
}

// most returns how many batches may be under way to a server that answers.
func (p *pacing) most() int {
	if p.alone {
		return p.conns
	}
	return batches(p.conns, p.response)
}

// batches returns how many may be under way. If the server is far away, more start before the first one is
// answered.
func batches(conns int, response time.Duration) int {
	return min(conns, manyBatches, max(fewBatches, int(response/perBatch)))
}

// gap returns the least time between the starts of two batches. If more than a few are under way, they
// are spread over the response time, so that no call waits long for the next one.
func (p *pacing) gap() time.Duration {
	n := p.most()
	if p.alone || n <= fewBatches {
		return 0
	}
	return min(p.response/time.Duration(n), p.slack()*2/3)
}

// slack returns how long a call can wait for its batch and still be answered in time. It leaves
// time for an answer that takes longer than the last one.
func (p *pacing) slack() time.Duration { return max(p.timeout/16, (p.timeout-p.response)*3/4) }

// fits reports whether a batch has room for a call.
func (p *pacing) fits(b *batch, c *Call) bool {
	return len(b.calls) == 0 || !p.alone && b.weight+c.Weight <= p.room
}

// learn adjusts the pace to the time that a batch's answer took. One slow answer changes little. If
// the answer was too late for the first call, batches become smaller, because Redis or this process
// is too busy for all calls. If batches are spread, the next batch waits a little, so that callers
// who were just answered can join it. Otherwise they would wait for the batch after it.
func (p *pacing) learn(b *batch, now time.Time) {
	switch {
	case now.Sub(b.calls[0].since) > p.timeout:
		p.room = max(minWeight, p.room*3/4)
	case b.weight > p.room*3/4:
		p.room = min(maxWeight, p.room*9/8)
	}
	took := now.Sub(b.sent)
	if p.response > 0 {
		took = min(took, p.response+p.response/4)
	}
	p.response = took
	if joined := now.Add(min(p.gap()/2, rejoin)); joined.After(p.resume) {
		p.resume = joined
	}
}
