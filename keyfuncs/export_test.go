package keyfuncs

// ForgetWarning makes RemoteIP say its warning again.
func ForgetWarning() {
	unchecked.said.Store(false)
	looked.Store(0)
}
