-- clock is what grant lifts a token to, in microseconds. A node that stands alone goes by its own
-- clock.
local function clock()
  local time = redis.call('TIME')
  moment = time[1] * 1000 + math.floor(time[2] / 1000)
  return time[1] * 1000000 + time[2]
end
