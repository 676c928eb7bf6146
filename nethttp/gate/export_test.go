package gate

// ForgetHandlers lets [Decide] log again at once.
func ForgetHandlers() {
	handlers.down.said.Store(0)
	handlers.broken.said.Store(0)
}
