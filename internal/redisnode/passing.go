package redisnode

// entries are those who do not have a lock for themselves: readers, and who has a slot. Two
// keys have them. The sorted set ends says of each value when its lease ends, by the
// server's clock. The hash facts has its number, its slot (or -1) and the holder's text. A
// value that begins with '?' is a reservation, and has no facts.
//
// While there are any, the lock's own key has a value that is nobody's, and lasts as long as
// the last of them: so clients of other libraries wait. They may delete it, so ours
// go by the entries.
//
// The kind of an entry, or of a waiter, is in its value: '#' begins the values of readers,
// 'n#' those that want one of n slots. Other values want the lock for themselves.
//
// mayGrow comes before what gives back or keeps, and changes nothing. A server whose memory is
// full refuses commands that need more, but not in a script that has written something
// before (scriptVerifyOOM in script.c of Redis 7.0). HDEL needs none.
//
// read begins all that follows. held is then the value that has the lock for itself, also
// a reservation or a stranger's, or else count tells how many entries there are, of a kind.
// stale says that the lock's key has nobody's value.
const entries = `
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
`

// leaving frees what a value has, and says whether it had anything. pass or settle follow.
const leaving = `
local function free(value)
  if held == value then
    held, stale = false, true
  elseif kindOf(value) and remove(value) then
    count, moved = count - 1, true
  else
    return false
  end
  return true
end

local function isReserved() return held and #held == 28 and string.sub(held, 1, 1) == '?' end

local function reason()
  if redis.call('GET', mark) == 'forced' then return -2 end
  return -1
end
`

// pass reserves a lock that nobody has for himself for those waiters who can have it: the
// first that is still there; with him, where he is a reader, all readers up to the next
// writer; or as many as there are slots. Only their processes are told to claim it. A
// waiter whose process does not listen any more is dropped. (In a Cluster a server counts
// only its own listeners. There counts is 0, and nobody is dropped.) A waiter that does not
// claim the lock in time loses it. So that somebody notices, the last of the queue, which
// has come most recently, is told to look again by then: several at the front may be
// paused, and all others sleep until the end of a lease that is long over. Where the last
// does not listen, the first is told.
//
// The sorted set due says by when each waiter must have asked again. A waiter that has not asked
// leaves the queue (purge). If it was only paused, it brings its ticket and returns to its place.
// So the lock is reserved for nobody who is known to be dead.
//
// A writer at the front that waits for readers keeps later readers out. It may wait for long,
// so a claim would show too late that it is dead. It must look once a second instead, from when it
// comes to the front and is told to (absent). Once it has looked from there, its score in due ends
// in .5, and nobody shortens the time that it asked for.
//
// A script looks at MANY waiters at most. A reader that claims the lock passes it on to those that
// the script has not reached. If all that it looked at were dead, the script answers with a list of
// one number in place of the number (passOn), and is sent again.
//
// The waiter called mine is the one that asks just now, so it need not be told. pass answers
// whether others can go on, whether it is the turn of mine, whether one that died was dropped, and
// whether there is more to do before anybody has the lock.
const passing = entries + leaving + waking

const waking = `
local function leave(member)
  redis.call('ZREM', due, member)
  redis.call('ZREM', queue, member)
end

local function tell(member, word)
  local value, id = string.match(member, '^([^:]+):(.+)$')
  if not id then return nil, 0 end
  return value, redis.pcall('PUBLISH', 'lockstile:w:' .. id, word .. value)
end

local function standBy(counts)
  local latest = redis.call('ZRANGE', queue, -1, -1)[1]
  local _, heard = tell(latest or '', '!')
  if latest and (heard == 0 or counts == '0') then
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if first ~= latest then tell(first, '!') end
  end
end

local function admits(value)
  local wants = kindOf(value)
  if held or count == 0 then return not held end
  return wants == kind and (wants == '' or count < tonumber(wants))
end

local function here(member, counts)
  local _, heard = tell(member, '')
  return heard ~= 0 or counts == '0'
end

local function wake(at, counts)
  for _ = 1, MANY do
    local member = redis.call('ZRANGE', queue, at, at)[1]
    if not member then return false end
    if here(member, counts) then return true end
    leave(member)
  end
end

local function purge()
  local late = redis.call('ZRANGE', due, '-inf', '(' .. now(), 'BYSCORE', 'LIMIT', 0, 500)
  if not late[1] then return false end
  redis.call('ZREM', due, unpack(late))
  for _, member in ipairs(late) do tell(member, '') end
  return redis.call('ZREM', queue, unpack(late)) > 0
end

local function absent(member, claim, counts)
  local by = redis.call('ZSCORE', due, member)
  if by and (by % 1 ~= 0 or tonumber(by) <= now() + claim) then return false end
  redis.call('ZADD', due, now() + claim, member)
  redis.call('PEXPIRE', due, claim + 60000, 'NX')
  return not here(member, counts)
end

local function pass(claim, counts, mine)
  local passed, turn, dropped, room = false, false, purge(), MANY
  while not held and room > 0 do
    local member = redis.call('ZRANGE', queue, 0, 0)[1]
    local value = member and string.match(member, '^([^:]+):.')
    local open = not value or admits(value)
    if not member or not open and (kind ~= '' or value == mine or not absent(member, claim, counts)) then break end
    leave(member)
    dropped, room = dropped or not open, room - 1
    if open and value and (value == mine or here(member, counts)) then
      if value == mine then turn = true else passed = true end
      if kindOf(value) then enter('?' .. value, claim, '') else held = '?' .. value end
    end
  end
  if held and passed then redis.call('SET', lock, held, 'PX', claim) end
  settle()
  if passed then standBy(counts) end
  return passed, turn, dropped, not held and room == 0
end

local function passOn(code, claim, counts)
  local passed, _, _, more = pass(claim, counts)
  return more and not passed and {code} or code
end
`
