package machine

// TrailWords is how many numbers a [Trail] packs into, besides its newest instant.
const TrailWords = few - 1

// Pack writes a trail as numbers, for a store that keeps no Trails. Its newest instant is not
// among them: it is [Rule.Expires] less the period. If the trail is longer than fits, Pack
// returns the Blocks that belong to the numbers. If not, it returns how many instants there
// are.
func (t *Trail) Pack(words *[TrailWords]int64) (n int, blocks *Blocks) {
	if t.blocks != nil {
		*words = [TrailWords]int64{t.base, int64(t.n), int64(t.head)}
		return 0, t.blocks
	}
	for i := range words {
		words[i] = t.base + t.few[i]
	}
	return int(t.n), nil
}

// Unpack makes t, a zero Trail, the trail of n instants that Pack wrote.
func (t *Trail) Unpack(words *[TrailWords]int64, n int, newest int64) {
	t.n = int32(n)
	copy(t.few[:], words[:])
	if n > 0 {
		t.few[n-1] = newest
	}
}

// UnpackBlocks makes t, a zero Trail, the trail that Pack wrote with these Blocks. t
// takes the Blocks over and changes them: after a write, use only what Pack returns.
func (t *Trail) UnpackBlocks(words *[TrailWords]int64, blocks *Blocks) {
	t.base, t.n, t.head, t.blocks = words[0], int32(words[1]), int32(words[2]), blocks
}
