//go:build race

package memorystore

// The race detector makes each key slow.
const floodMax, floodKeys = 20_000, 100_000
