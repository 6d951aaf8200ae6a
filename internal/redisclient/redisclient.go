// Package redisclient says which clients and servers locks and guards in Redis can use.
package redisclient

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Usable returns an error that names a client which cannot be used. A Ring sends a key to
// another server when one is down, and what wraps a client may send anything anywhere: a
// question to another server than the write that it is about.
func Usable(rdb redis.UniversalClient) error {
	switch rdb := rdb.(type) {
	case *redis.Client:
		if rdb != nil {
			return nil
		}
	case *redis.ClusterClient:
		if rdb != nil {
			return nil
		}
	case nil:
	default:
		return fmt.Errorf("a %T may send requests that belong together to different servers: use a *redis.Client or *redis.ClusterClient, with hooks in place of what wraps it", rdb)
	}
	return errors.New("the client is nil")
}

// Since7 begins scripts that write. It refuses a server that is older than Redis 7.0 before
// anything is written: scripts see the server's version since then.
const Since7 = `
if not redis.REDIS_VERSION_NUM then
  local info = redis.pcall('INFO', 'server')
  local version = type(info) == 'string' and string.match(info, 'redis_version:(%S+)') or 'unknown'
  return redis.error_reply('ERR version ' .. version .. ' of Redis is too old: 7.0 or later is needed')
end
`
