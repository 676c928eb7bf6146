package memorystore

// Len returns how many keys the store keeps, and MaxKeys. Expired keys count until the store
// drops them.
func (s *Store) Len() (keys, maxKeys int) { return int(s.used.Load()), int(s.max) }
