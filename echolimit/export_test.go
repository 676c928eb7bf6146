package echolimit

// Tables is how many tables of routes are kept.
func Tables() (n int) {
	tables.Range(func(any, any) bool { n++; return true })
	return n
}
