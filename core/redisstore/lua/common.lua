-- What several machines need.

--@ text
local call, floor = redis.call, math.floor

local function int(n) return format('%d', n) end

-- expiry is the last millisecond in which a state may be of use.
local function expiry(at) return int(floor((at + 999) / 1000)) end
