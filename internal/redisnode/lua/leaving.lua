-- free frees what a value has, and says whether it had anything. pass or settle follow.
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
