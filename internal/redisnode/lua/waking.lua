-- pass reserves a lock that nobody has for himself for those waiters who can have it: the
-- first that is still there; with him, where he is a reader, all readers up to the next
-- writer; or as many as there are slots. Only their processes are told to claim it. A
-- waiter whose process does not listen any more is dropped. (In a Cluster a server counts
-- only its own listeners. There counts is 0, and nobody is dropped.) A waiter that does not
-- claim the lock in time loses it. So that somebody notices, the last of the queue, which
-- has come most recently, is told to look again by then: several at the front may be
-- paused, and all others sleep until the end of a lease that is long over. Where the last
-- does not listen, the first is told.
--
-- The sorted set due says by when each waiter must have asked again. A waiter that has not asked
-- leaves the queue (purge). If it was only paused, it brings its ticket and returns to its place.
-- So the lock is reserved for nobody who is known to be dead.
--
-- A writer at the front that waits for readers keeps later readers out. It may wait for long,
-- so a claim would show too late that it is dead. It must look once a second instead, from when it
-- comes to the front and is told to (absent). Once it has looked from there, its score in due ends
-- in .5, and nobody shortens the time that it asked for.
--
-- A script looks at MANY waiters at most. A reader that claims the lock passes it on to those that
-- the script has not reached. If all that it looked at were dead, the script answers with a list of
-- one number in place of the number (passOn), and is sent again.
--
-- The waiter called mine is the one that asks just now, so it need not be told. pass answers
-- whether others can go on, whether it is the turn of mine, whether one that died was dropped, and
-- whether there is more to do before anybody has the lock.
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
