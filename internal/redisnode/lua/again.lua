-- again answers the grant that the value has already, and starts its lease anew. Was is the last grant.
local function again(was)
  local _, next = string.find(was, ' ' .. value .. ' ', 1, true)
  if not next then return grant(TOKENS) end
  if redis.call('PEXPIRE', lock, ttl, 'GT') == 0 then redis.call('PEXPIRE', lock, ttl, 'NX') end -- as in renew.lua
  return tonumber(string.match(was, '^%d+', next + 1))
end
