-- clock is what grant lifts a token to, in microseconds. Nodes of a quorum must come to the same
-- token, so each takes the clock that the client offers to all of them, its last argument, as long as
-- that is within a tenth of a second of the node's own.
local function clock()
  local time = redis.call('TIME')
  moment = time[1] * 1000 + math.floor(time[2] / 1000)
  local own = time[1] * 1000000 + time[2]
  return math.max(own - 100000, math.min(own + 100000, tonumber(ARGV[#ARGV])))
end
