package echolimit

// ForgetPre lets [Route] say again that it is asked before the routing.
func ForgetPre() { saidBeforeRouting.Store(false) }
