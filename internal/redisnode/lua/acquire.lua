-- acquire answers the token, or 0 if the value was withdrawn, or how things
-- stand: the lock's time left in ms, how many wait before us, our ticket, and a 1 if the key
-- has no end and is no lock of ours: somebody may have written data there. A waiter that
-- finds a claim lapsed passes the lock on, and is told that nobody waits before it. So it
-- looks again when the next claim may lapse: it has shown that it is awake.
--
-- A waiter behind a writer that waits for readers looks when that one must have looked, each
-- a tenth of a second later than the one before it. Who finds it dead looks again when the next
-- one must have looked: it has been told to just now. If a script has met as many dead waiters as
-- it may look at, the waiter that asks looks again at once.
--
-- A waiter has its ticket from its first answer. It is put back into its place before anybody
-- is served, for it may have come late and have left the queue.
--
-- A waiter may ask later than it was told to, by its slack. A waiter behind readers has its claim
-- time. Any other waiter has five seconds, for it delays nobody before its turn, and a busy machine
-- must not change the order.
--
-- A holder that the last grant does not name is a stranger: a client of another library,
-- which tells nobody when it gives the lock back. So the first waiter is told to look
-- ten times a second, and each other one a second later than the one before it: a long
-- queue does not ask all the time. A stranger's key has any number of milliseconds left,
-- or no end. A reservation of ours is no stranger, nor is a lock that is kept taken.
--
-- Sent again after a lost reply, it answers the same grant and starts the lease anew, for
-- the caller may count its validity from the second request.
--- include "keys"
--- include "ROLE/clock"
--- include "ROLE/vote"

local value, ttl, holder, claim, counts, member, ticket, keep = unpack(ARGV)
local wants = string.match(value, '^(%d*)#')

--- include "grant"

if not wants and redis.call('EXISTS', lock, queue, mark, ends) == 0 then return grant(TOKENS) end

--- include "entries"

-- This is the usual case of those who share a lock: nobody waits, and readers have it
-- or nobody. Its key then lasts for this share at least.
local has = redis.call('GET', lock)

local function admit(slot)
  local number = grant(1)
  enter(value, ttl, string.format('%.0f %d %s', number, slot, holder))
  return slot < 0 and number or {number, slot}
end

if wants and (not has or has == '#lockstile' and wants == '') and redis.call('EXISTS', queue, mark, has and mark or ends) == 0 then
  if not has then
    local answer = admit(wants == '' and -1 or 0)
    redis.call('SET', lock, wants .. '#lockstile', 'PXAT', now() + ttl)
    return answer
  end
  local own = redis.call('ZMSCORE', ends, value, '?' .. value)
  if not own[1] and not own[2] then
    read(has)
    local answer = admit(-1)
    redis.call('PEXPIREAT', lock, now() + ttl, 'GT')
    return answer
  end
end

--- include "leaving"
--- include "waking"
--- include "ROLE/arrival"
--- include "again"

local function freeSlot()
  if wants == '' then return -1 end
  local taken, slot = {}, 0
  for _, fact in ipairs(count > 0 and redis.call('HVALS', facts) or {}) do taken[string.match(fact, '^%d+ (%S+)') or ''] = true end
  while taken[tostring(slot)] do slot = slot + 1 end
  return slot
end

local function share()
  local answer = admit(freeSlot())
  if redis.call('EXISTS', queue) == 1 then pass(500, counts) else settle() end
  return answer
end

read(has)
local was = held and redis.call('GET', last) or ''
if held == value then return again(was) end
local own = wants and not held and redis.call('ZMSCORE', ends, value, '?' .. value) or {}
if own[1] then
  local number, slot = string.match(redis.call('HGET', facts, value) or '', '^(%d+) (%S+)')
  if not number then return share() end
  enter(value, ttl)
  settle()
  return wants == '' and tonumber(number) or {tonumber(number), tonumber(slot)}
end
if redis.call('EXISTS', mark) == 1 then return 0 end
local reserved, passed, dropped, more = held == '?' .. value or own[2], false, false, false
if member ~= '' and ticket ~= '0' and not reserved then
  redis.call('ZADD', queue, 'NX', ticket, member)
  redis.call('ZREM', due, member)
end
if not reserved and not held then passed, reserved, dropped, more = pass(500, counts, value) end
if reserved then free('?' .. value) end
if reserved or admits(value) and redis.call('EXISTS', queue) == 0 then
  if member ~= '' then redis.call('ZREM', queue, member) end
  return wants and share() or grant(TOKENS)
end
local have, slots = not held and kind or nil, tonumber(wants or '')
if wants ~= have and (slots or tonumber(have or '')) then
  if member ~= '' then leave(member) end
  return {have and (tonumber(have) or 0) or -1}
end
local of = string.match(was, '^%S+ (%S+) ')
local ours = of and (held == of or held == '-' .. of) or isReserved()
local endless = held and not ours and redis.call('PTTL', lock) == -1 and 1 or nil
if member == '' then return {0, 0, more and not passed and -1 or 0, endless} end
if held then purge() end
if ticket == '0' then ticket = string.format('%.0f', arrival(queue)) end
redis.call('ZADD', queue, 'NX', ticket, member)
local rank = redis.call('ZRANK', queue, member)
local ahead, left, look, slack = (passed or dropped or more) and 0 or rank, 0, 0, 5000
if held then
  left, look = redis.call('PTTL', lock), 100 + ahead * 1000
  if left < 0 or left > look and not ours then left = look end
elseif not more then
  local next = slots and 0 or -1
  left = redis.call('ZRANGE', ends, next, next, 'WITHSCORES')[2] - now()
  if not slots then
    local by = rank > 0 and redis.call('ZSCORE', due, redis.call('ZRANGE', queue, 0, 0)[1])
    left, ahead, slack = math.min(left, (by and math.max(math.floor(by) - now() + 1, 0) or 1000) + ahead * 100), 0, claim + (rank == 0 and 0.5 or 0)
  end
end
redis.call('ZADD', due, now() + left + math.min(ahead, 4) * 500 + slack, member)
local keep = math.max(left, tonumber(ttl)) + 60000
if redis.call('PTTL', queue) < keep - 30000 then redis.call('PEXPIRE', queue, keep) end
if redis.call('PTTL', due) < keep - 30000 then redis.call('PEXPIRE', due, keep) end
return {left, ahead, tonumber(ticket), endless}
