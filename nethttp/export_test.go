package nethttp

// ForgetTwice makes it be said again that a request is charged twice.
func ForgetTwice() { twice.said.Store(false) }

// ForgetHandlersDown lets [Allow] say again that a store fails.
func ForgetHandlersDown() { handlersDown.said.Store(0) }
