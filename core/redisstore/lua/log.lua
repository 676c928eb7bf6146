-- The log of a sliding window: a sorted set. The score of an entry is its instant. The member is a
-- unique number, followed by r if the action was refused. trail.lua says what the functions do, and
-- what the fields of s are. The field s.id is the number of the newest entry. The field s.ids has
-- the numbers of the added entries, if they are slots.

local call = redis.call
local state = require 'state'
local int, unpack = state.int, state.unpack

local log = {}

function log.fromNewest(s, i)
	local found = call('ZRANGE', s.key, int(-i - 1), int(-i - 1), 'WITHSCORES')
	if not found[1] then return nil end
	local score = tonumber(found[2])
	local at = score and math.floor(score)
	if not at or at ~= score or at < 0 or at >= 2 ^ 53 then error(state.nonsense, 0) end
	return at, found[1]
end

function log.load(s, key)
	s.key, s.id = key, 0
	local newest, member = log.fromNewest(s, 0)
	s.newest = newest or false
	if newest then
		local id = string.match(member, '^(%d+)r?$')
		if not id or #id > 16 then error(state.nonsense, 0) end
		s.id = id + 0
	end
end

function log.live(s, after) return call('ZCOUNT', s.key, '(' .. int(after), '+inf') end

-- expire makes the log expire with its newest entry. If no entry is left, Redis has deleted the
-- log, and expire must not touch the key: if a slot of a Cluster is being moved, the key belongs to
-- another server by then.
function log.expire(r, s, entries)
	if entries > 0 then
		call('PEXPIREAT', s.key, state.expiry(log.fromNewest(s, 0) + r.period))
	end
end

-- remove first removes admitted actions of the instant made. If these are fewer than units, it also
-- removes refused attempts of that instant. A limit with a lower max may have replaced admitted
-- actions by refused attempts. memorystore does not know which entries are refused attempts.
function log.remove(r, made, units, s)
	local members = call('ZRANGE', s.key, int(made), int(made), 'BYSCORE')
	local entries = call('ZCOUNT', s.key, '-inf', '+inf')
	for _, refused in ipairs({false, true}) do
		for i = #members, 1, -1 do
			if units > 0 and (string.sub(members[i], -1) == 'r') == refused then
				entries = entries - call('ZREM', s.key, members[i])
				units = units - 1
			end
		end
	end
	log.expire(r, s, entries)
end

-- add adds scores and members, in portions that unpack can take.
local function add(key, pairs)
	for i = 1, #pairs, 1000 do
		call('ZADD', key, unpack(pairs, i, math.min(i + 999, #pairs)))
	end
end

function log.save(r, now, s, stored)
	local key, new = s.key, {}
	if s.behind > 0 then
		local all = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
		for i = 1, #all, 2 do
			new[i], new[i + 1] = int(all[i + 1] - s.behind), all[i]
		end
	end
	for i = 1, s.added do
		s.id = s.ids and s.ids[i] or math.max(s.id + 1, now)
		new[#new + 1] = int(now)
		new[#new + 1] = int(s.id) .. (i > s.admitted and 'r' or '')
	end
	-- Add before removing: once a script has written, Redis lets it exceed maxmemory.
	add(key, new)
	if s.added > 0 then
		call('ZREMRANGEBYSCORE', key, '-inf', int(now - r.period))
	end
	if s.added > s.admitted then
		call('ZREMRANGEBYRANK', key, '0', int(-math.max(r.max, stored + s.admitted) - 1))
	end
	call('PEXPIREAT', key, state.expiry(now + r.period))
end

return log
