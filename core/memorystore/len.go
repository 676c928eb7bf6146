package memorystore

// Len returns how many keys the store keeps, those included that have expired and are not
// dropped yet, and how many it may keep: MaxKeys.
func (s *Store) Len() (keys, maxKeys int) { return int(s.used.Load()), int(s.max) }
