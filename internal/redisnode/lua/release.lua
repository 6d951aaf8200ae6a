-- release answers 0 if the lock was given back, and -1 or -2 (forced) if it was not
-- ours. The mark refuses a request for the lock that is still on its way, in either case.
-- A lock that is gone, because somebody has deleted its key, is passed on all the same:
-- its waiters do not know yet.
--- include "keys"

local value, claim, counts, remember = unpack(ARGV)
local has = redis.call('GET', lock)
local usual = remember == '0' and redis.call('EXISTS', queue) == 0
if usual and has == value then
  redis.call('DEL', lock)
  return 0
end

--- include "entries"
--- include "leaving"
-- A share has the lock's key last for the others, and no longer: their leases may be
-- shorter. An entry that is over and still there has kept others out until now.
if usual and isNobodys(has) and remove(value) then
  local latest = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  if latest then redis.call('PEXPIREAT', lock, latest, 'LT') else redis.call('DEL', lock, facts) end
  return 0
end

--- include "waking"

read(has)
local lost = (not free(value) or held) and reason()
mayGrow()
if remember ~= '0' and lost ~= -2 then redis.call('SET', mark, 'withdrawn', 'PX', remember) end
return passOn(lost or 0, claim, counts)
