package echolimit

// ForgetPre lets [Route] look again whether it is asked before the routing.
func ForgetPre() { looks.Store(0) }
