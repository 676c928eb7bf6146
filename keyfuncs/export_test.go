package keyfuncs

// ForgetWarning makes RemoteIP and Header say their warnings again.
func ForgetWarning() {
	unchecked.Store(false)
	looked.looks.Store(0)
	misread.Store(false)
	peers = crowd{}
}
