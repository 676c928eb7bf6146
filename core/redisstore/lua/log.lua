-- The log of a sliding window: a sorted set. The score is the instant, the member a unique
-- number, followed by r if the action was refused. trail.lua says what the functions do, and what the fields of l are.
-- id is the number of the newest entry. Of slots, ids are those of the entries that are added.

local call = redis.call
local state = require 'state'
local int, unpack = state.int, state.unpack

local log = {}

function log.fromNewest(l, i)
	local found = call('ZRANGE', l.key, int(-i - 1), int(-i - 1), 'WITHSCORES')
	if not found[1] then return nil end
	local score = tonumber(found[2])
	local at = score and math.floor(score)
	if not at or at ~= score or at < 0 or at >= 2 ^ 53 then error(state.nonsense, 0) end
	return at, found[1]
end

function log.load(l, key)
	l.key, l.id = key, 0
	local newest, member = log.fromNewest(l, 0)
	l.newest = newest
	if newest then
		local id = string.match(member, '^(%d+)r?$')
		if not id or #id > 16 then error(state.nonsense, 0) end
		l.id = id + 0
	end
end

function log.live(l, after) return call('ZCOUNT', l.key, '(' .. int(after), '+inf') end

-- expire has the log expire with its newest entry. An empty one is gone, and must not be touched: in a Cluster whose
-- slot moves it is another server's.
function log.expire(l, entries)
	if entries > 0 then
		call('PEXPIREAT', l.key, state.expiry(log.fromNewest(l, 0) + l.period))
	end
end

-- remove removes refused attempts of the same instant last: the action itself may have been
-- dropped for them by a limit with a lower max. memorystore cannot distinguish the two.
function log.remove(l, made, units)
	local members = call('ZRANGE', l.key, int(made), int(made), 'BYSCORE')
	local entries = call('ZCOUNT', l.key, '-inf', '+inf')
	for _, refused in ipairs({false, true}) do
		for i = #members, 1, -1 do
			if units > 0 and (string.sub(members[i], -1) == 'r') == refused then
				entries = entries - call('ZREM', l.key, members[i])
				units = units - 1
			end
		end
	end
	log.expire(l, entries)
end

-- add adds scores and members, in portions that unpack can take.
local function add(key, pairs)
	for i = 1, #pairs, 1000 do
		call('ZADD', key, unpack(pairs, i, math.min(i + 999, #pairs)))
	end
end

function log.save(l, now)
	local key, new = l.key, {}
	if l.behind > 0 then
		local all = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
		for i = 1, #all, 2 do
			new[i], new[i + 1] = int(all[i + 1] - l.behind), all[i]
		end
	end
	for i = 1, l.added do
		l.id = l.ids and l.ids[i] or math.max(l.id + 1, now)
		new[#new + 1] = int(now)
		new[#new + 1] = int(l.id) .. (i > l.admitted and 'r' or '')
	end
	-- Add before removing: after any write Redis lets a script exceed maxmemory.
	add(key, new)
	if l.added > 0 then
		call('ZREMRANGEBYSCORE', key, '-inf', int(now - l.period))
	end
	if l.added > l.admitted then
		call('ZREMRANGEBYRANK', key, '0', int(-math.max(l.max, l.stored + l.admitted) - 1))
	end
	call('PEXPIREAT', key, state.expiry(now + l.period))
end

return log
