-- arrival is a newcomer's ticket. On a server that stands alone it is behind those of all waiters,
-- also when the clock has gone back: else, after a step of an hour, newcomers would overtake them for
-- an hour.
local function arrival(queue)
  local latest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  return math.max(clock(), (tonumber(latest) or 0) + 1)
end
