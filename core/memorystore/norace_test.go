//go:build !race

package memorystore

const floodMax, floodKeys = 100_000, 2_000_000
