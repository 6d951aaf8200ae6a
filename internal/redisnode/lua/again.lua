-- again answers the grant that the value has already, and starts its lease anew. Was is the last grant.
local function again(was)
  local _, next = string.find(was, ' ' .. value .. ' ', 1, true)
  if not next then return grant(TOKENS) end
  redis.call('PEXPIRE', lock, ttl)
  return tonumber(string.match(was, '^%d+', next + 1))
end
