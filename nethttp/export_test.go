package nethttp

// ForgetTwice makes it be said again that a request is charged twice.
func ForgetTwice() { twice.said.Store(false) }
