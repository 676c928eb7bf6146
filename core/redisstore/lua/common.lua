-- What several machines need.

--@ text
local call, floor = redis.call, math.floor

local function int(n) return format('%d', n) end

-- expiry is the expiry of a key in milliseconds, rounded up.
local function expiry(at) return int((at + 999) / 1000) end
