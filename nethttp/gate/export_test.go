package gate

// ForgetHandlers lets [Allow] log again at once.
func ForgetHandlers() {
	handlers.down.last.Store(0)
	handlers.broken.last.Store(0)
	handlers.nothing.Store(false)
	saidIgnored.Store(false)
}
