package main

import "time"

// shown is the quota of the figure: 5 a minute.
const shown = 5

// A traffic is what one user sends, whatever the limit says to it.
type traffic struct {
	name     string
	asks     string // what to look for
	arrivals []time.Duration
	length   time.Duration
}

var traffics = []traffic{
	{
		name:     "Burst at the edge",
		asks:     "over 5 in a minute?",
		arrivals: join(every(0, 1, 1), every(44, 4, 4), every(61, 4, 5)),
		length:   3 * period,
	}, {
		name:     "Steady, too fast",
		asks:     "evenly, or in lumps?",
		arrivals: every(0, 4, 45),
		length:   3 * period,
	}, {
		name:     "Hammer, then rest",
		asks:     "does it pay?",
		arrivals: join(every(0, 1, 101), every(170, 1, 1)),
		length:   3 * period,
	}, {
		name:     "Quiet, one burst",
		asks:     "does it cost later?",
		arrivals: join(every(0, 1, 1), every(30, 3, 7), every(70, 40, 3)),
		length:   3 * period,
	},
}

// every is n arrivals, the first at a second and the others so many seconds apart.
func every(first, apart, n int) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = time.Duration(first+i*apart) * time.Second
	}
	return at
}

func join(parts ...[]time.Duration) []time.Duration {
	var all []time.Duration
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
