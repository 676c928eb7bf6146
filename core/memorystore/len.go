package memorystore

import "github.com/tailcut/tailcut/core"

var (
	_ core.Accepter = (*Store)(nil)
	_ core.Refunder = (*Store)(nil)
	_ core.Sized    = (*Store)(nil)
)

// Len returns how many keys the store keeps, and MaxKeys. Expired keys count until the store
// drops them.
func (s *Store) Len() (keys, maxKeys int) { return int(s.used.Load()), int(s.max) }
