-- This refuses the vote of a node that may have forgotten a lock in a
-- restart that is younger than the longest lease. The uptime is counted in whole
-- seconds, so the last may not be over yet.
--
-- It is counted on the wall clock, too, and negative after a step back. So a
-- process that was once old enough is remembered, in a key of the node, and the
-- uptime is not asked again: a restarted one has another run_id, also where it
-- finds the key in its snapshot. The quarantine is remembered with it, for a
-- client with a longer one asks for more.
local quarantine = tonumber(ARGV[#ARGV - 1])
if quarantine > 0 then
  local info = redis.call('INFO', 'server')
  local run = string.match(info, 'run_id:(%w+)')
  local voter = run and run .. ' ' .. quarantine
  if not voter or redis.call('GET', 'lockstile:voter') ~= voter then
    local up = string.match(info, 'uptime_in_seconds:(-?%d+)')
    if not voter or not up or (up - 1) * 1000 < quarantine then
      local wait = math.ceil(quarantine / 1000) + 1 - (up or 0)
      return redis.error_reply('YOUNG no vote for another ' .. wait .. ' s, until it has been up for longer than max_ttl')
    end
    redis.call('SET', 'lockstile:voter', voter)
  end
end
