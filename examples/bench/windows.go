package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core"
)

// windows is row 13.
func windows(ctx context.Context, s settings) ([]table, error) {
	makers := []maker{
		makeLimit(usual.funnel()), makeLimit(core.FixedWindow(usual.n, usual.per)),
		makeLimit(core.SlidingWindow(5, time.Minute)), makeLimit(core.SlidingWindow(100, time.Minute)), makeLimit(core.MovingWindow(1000, time.Minute)),
	}
	ours := len(makers)
	makers = append(makers, inProcessPeers...)
	keys := manyKeys(0, min(someKeys, s.million), 5)
	var contenders []contender
	for _, m := range makers {
		ask, end, err := m.make(usual)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		defer end()
		for _, key := range keys {
			if _, err := ask(key); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		contenders = append(contenders, among(keys, 1, m.name, ask))
	}
	var scores []score
	err := onProcs(1, func() (err error) {
		scores, err = s.compete(ctx, s.most(usual, len(keys)), contenders...)
		return err
	})
	if err != nil {
		return nil, err
	}
	t := table{head: []string{count(len(keys), "key") + ", 1 proc", "ns a decision", "÷ the funnel", "÷ the fastest peer", "target", "met"}}
	peer := fastest(scores[ours:])
	for i, sc := range scores {
		r := quotient(sc.ns, scores[0].ns)
		line := []string{sc.name, whole(median(sc.ns)), ratio(r), fmt.Sprintf("%s (%s)", ratio(quotient(sc.ns, peer.ns)), peer.name)}
		if i == 2 {
			line = append(line, "≤ 1.8 of the funnel", met(r <= 1.8))
		} else {
			line = append(line, noPeer, noPeer)
		}
		t.add(line...)
	}
	t.note("The peers have a limit of %s; ulule's is a fixed window, httprate's an estimate from two, the others' are buckets. A full sliding window refuses.", usual)
	return []table{t}, nil
}
