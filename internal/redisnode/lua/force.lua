-- force frees the lock if value has it, and leaves a mark for the holder to find. Sent
-- again after a lost answer, it says the same.
--- include "keys"
--- include "passing"

local value, claim, counts, remember = unpack(ARGV)
read(redis.call('GET', lock))
mayGrow()
if not free(value) then return passOn(redis.call('GET', mark) == 'forced' and 1 or 0, claim, counts) end
if remember ~= '0' then redis.call('SET', mark, 'forced', 'PX', remember) end
return passOn(1, claim, counts)
