-- The machine of a kind that there is not. It fails its charge, and no other.

local function args(_, kind) return {kind = kind} end

local function load(l) error('no such kind: ' .. l.kind, 0) end

return {args = args, load = load}
