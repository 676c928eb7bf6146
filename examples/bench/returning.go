package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// makeLimit makes a limiter of an in-process limit, whatever the peers' quota is.
func makeLimit(limit core.Limit) maker {
	return maker{tailcut + ", " + strings.ReplaceAll(limit.String(), "1m", "1 m"), func(quota) (decide, func(), error) {
		l, err := core.New(memorystore.New(nil), limit)
		return asks(l), nothing, err
	}}
}

// returning is row 12. Most states of a funnel have expired when their user comes back, as
// on a public site.
func returning(ctx context.Context, s settings) ([]table, error) {
	makers := []maker{makeLimit(usual.funnel()), makeLimit(core.FixedWindow(usual.n, usual.per)), makeLimit(core.SlidingWindow(5, time.Minute))}
	const target = 1.1
	rnd := rand.New(rand.NewPCG(4, 0))
	known := manyKeys(0, s.million, 1)
	var blob strings.Builder // in the order of the walk, so that to read the keys costs little
	for range known {
		blob.WriteString(known[rnd.IntN(len(known))])
	}
	walk, size := make([]string, len(known)), len(known[0])
	for i := range walk {
		walk[i] = blob.String()[i*size : (i+1)*size]
	}
	t := table{head: []string{"ns a decision", "1 proc", "÷ the fastest peer", "2 procs", "÷ the fastest peer", "bytes allocated", "target", "met"}}
	asks := make([]decide, 0, len(makers)+len(inProcessPeers))
	all := append(makers[:len(makers):len(makers)], inProcessPeers...)
	for _, m := range all {
		ask, end, err := m.make(usual)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		defer end()
		for _, key := range known {
			if _, err := ask(key); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		asks = append(asks, ask)
	}
	var scores [2][]score
	for procs := range scores {
		var contenders []contender
		for i, m := range all {
			contenders = append(contenders, among(walk, procs+1, m.name, asks[i]))
		}
		err := onProcs(procs+1, func() (err error) {
			scores[procs], err = s.compete(ctx, 0, contenders...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for i, m := range all {
		line, most, bytes := []string{m.name}, 0.0, 0.0
		for procs := range scores {
			sc, peer := scores[procs][i], fastest(scores[procs][len(makers):])
			r := quotient(sc.ns, peer.ns)
			line = append(line, whole(median(sc.ns)), fmt.Sprintf("%s (%s)", ratio(r), peer.name))
			most, bytes = max(most, r), max(bytes, median(sc.bytes))
		}
		if line = append(line, whole(bytes)); i < len(makers) {
			line = append(line, fmt.Sprintf("≤ %s, ≤ 8 bytes", plain(target)), met(most <= target && bytes <= 8))
		} else {
			line = append(line, noPeer, noPeer)
		}
		t.add(line...)
	}
	t.note("%s at random; the peers have a limit of %s. A unit of the funnel is gone after 60 ms, before most users come back. A full sliding window refuses.", count(s.million, "user"), usual)
	return []table{t}, nil
}
