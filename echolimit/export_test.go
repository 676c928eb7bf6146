package echolimit

// ForgetPre lets [Route] look again whether it is asked before the routing.
func ForgetPre() {
	preRouting.said.Store(false)
	preRouting.looked.Store(0)
}
