//go:build !unix

package redistest

// Pause skips the test: a process can be paused only on Unix.
func (s *Server) Pause() {
	s.t.Helper()
	s.t.Skip("a process can be paused only on Unix")
}

// Resume does nothing.
func (s *Server) Resume() {}
