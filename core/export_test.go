package core

// ForgetBuilt forgets the limiters that were built while requests were served.
func ForgetBuilt() {
	built.mu.Lock()
	defer built.mu.Unlock()
	built.said, built.gone = false, builtAndGone.Load()
}

// BuiltAndGone is how many of them are garbage.
func BuiltAndGone() int { return int(builtAndGone.Load()) }
