-- inspect only reads. It shows some of those who share a lock, and answers where to go on, or
-- '0'.
local time = redis.call('TIME')
local now, values = time[1] * 1000 + math.floor(time[2] / 1000), {}
local next, left = unpack(redis.call('ZSCAN', KEYS[4], ARGV[1], 'COUNT', 500))
for i = 1, #left, 2 do
  table.insert(values, left[i])
  left[i + 1] = string.format('%d', left[i + 1] - now)
end
local facts = {}
for i = 1, #values, 1000 do
  for _, fact in ipairs(redis.call('HMGET', KEYS[5], unpack(values, i, math.min(i + 999, #values)))) do table.insert(facts, fact) end
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '',
  redis.call('ZCARD', KEYS[3]), left, facts, next}
