-- resume grants the lock to a value in place of another one, which another process had and has handed over. It is one of
-- those that follow. Each of them is marked, whatever the answer is: a request with it that is still on its way must not find the lock free when it was given
-- back, or has ended. It answers the token, or -1 or -2 (forced) if none of them has the lock.
--
-- Sent again after a lost reply, it answers the same grant and starts the lease anew, as acquire does.
--- include "keys"
--- include "ROLE/clock"

local value, ttl, holder, keep, remember = unpack(ARGV)
local wants
--- include "grant"
--- include "again"

local has, forced = redis.call('GET', lock), redis.call('GET', mark) == 'forced'
local found = has == value
for i = 8, #KEYS do
  found = found or has == ARGV[i - 2]
  forced = forced or redis.call('GET', KEYS[i]) == 'forced'
end
if has == value then return again(redis.call('GET', last) or '') end
local answer = not found and (forced and -2 or -1) or grant(TOKENS)
for i = 8, (found or not forced) and #KEYS or 0 do
  redis[found and 'call' or 'pcall']('SET', KEYS[i], 'withdrawn', 'PX', remember) -- full memory refuses the first write of a script
end
return answer
