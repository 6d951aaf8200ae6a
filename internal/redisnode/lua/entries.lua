-- entries are those who do not have a lock for themselves: readers, and who has a slot. Two
-- keys have them. The sorted set ends says of each value when its lease ends, by the
-- server's clock. The hash facts has its number, its slot (or -1) and the holder's text. A
-- value that begins with '?' is a reservation, and has no facts.
--
-- While there are any, the lock's own key has a value that is nobody's, and lasts as long as
-- the last of them: so clients of other libraries wait. They may delete it, so ours
-- go by the entries.
--
-- The kind of an entry, or of a waiter, is in its value: '#' begins the values of readers,
-- 'n#' those that want one of n slots. Other values want the lock for themselves.
--
-- mayGrow comes before what gives back or keeps, and changes nothing. A server whose memory is
-- full refuses commands that need more, but not in a script that has written something
-- before (scriptVerifyOOM in script.c of Redis 7.0). HDEL needs none.
--
-- read begins all that follows. held is then the value that has the lock for itself, also
-- a reservation or a stranger's, or else count tells how many entries there are, of a kind.
-- stale says that the lock's key has nobody's value.
local held, stale, kind, moved
local count = 0

local function now()
  if not moment then
    local time = redis.call('TIME')
    moment = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return moment
end

local function kindOf(value) return string.match(value, '^%??(%d*)#') end

local function isNobodys(value) return value and string.find(value, '^%d*#lockstile$') and true end

local function remove(value)
  redis.call('HDEL', facts, value)
  return redis.call('ZREM', ends, value) == 1
end

local function read(value)
  stale = isNobodys(value)
  held = not stale and value
  local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) < now() then
    local over = redis.call('ZRANGE', ends, '-inf', '(' .. now(), 'BYSCORE')
    for i = 1, #over, 1000 do redis.call('HDEL', facts, unpack(over, i, math.min(i + 999, #over))) end
    redis.call('ZREMRANGEBYSCORE', ends, '-inf', '(' .. now())
    first, moved = redis.call('ZRANGE', ends, 0, 0), true
  end
  kind, count = first[1] and kindOf(first[1]), first[1] and redis.call('ZCARD', ends) or 0
end

local function mayGrow() redis.call('HDEL', facts, '') end

local function enter(value, time, fact)
  local first = count == 0
  if first then redis.call('DEL', facts) end
  if fact then redis.call('HSET', facts, value, fact) end
  count = count + redis.call('ZADD', ends, now() + time, value)
  kind, moved = kindOf(value), true
  if first or redis.call('PTTL', facts) < time + 30000 then
    redis.call('PEXPIRE', ends, time + 60000)
    redis.call('PEXPIRE', facts, time + 60000)
  end
end

local function settle()
  local latest = count > 0 and redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  if latest and moved and not held then
    redis.call('SET', lock, kind .. '#lockstile', 'PXAT', latest)
  elseif not latest and stale then
    if moved then redis.call('DEL', facts) end
    if not held then redis.call('DEL', lock) end
  end
end
