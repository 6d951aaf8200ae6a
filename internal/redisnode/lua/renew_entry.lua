-- renew_entry is renew for an entry. Where somebody has deleted the lock's key, it is written
-- again. Somebody who has put another value there has taken the lock over. An entry that is
-- lost keeps nobody out: what is lost is not withdrawn.
--- include "since7"
local moment
local lock, ends, facts = unpack(KEYS)
--- include "entries"

read(redis.call('GET', lock))
if held or not redis.call('ZSCORE', ends, ARGV[1]) or redis.call('HEXISTS', facts, ARGV[1]) == 0 then
  remove(ARGV[1])
  return 0
end
mayGrow()
enter(ARGV[1], ARGV[2])
settle()
return 1
