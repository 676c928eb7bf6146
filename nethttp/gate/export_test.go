package gate

// ForgetHandlers lets [Allow] log again at once.
func ForgetHandlers() {
	handlers.down.Store(0)
	handlers.broken.Store(0)
	handlers.nothing.Store(false)
	saidIgnored.Store(false)
}
