package core

// ForgetWarning makes core say again that the lease of a slot has ended.
func ForgetWarning() { outlived.Store(false) }
