package keyfuncs

// ForgetWarning makes RemoteIP say its warning again.
func ForgetWarning() {
	nobodyTrusts.said.Store(false)
	nobodyTrusts.looked.Store(0)
}
