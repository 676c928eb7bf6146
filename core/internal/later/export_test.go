package later

// Waiting returns how many tries the process waits for.
func Waiting() int { return int(waiting.Load()) }
