package redisfence

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/testserver"
)

// A server that is older than Redis 7.0 lacks a value that scripts look for. Here they look
// for one that no server has.
func TestServerOlderThanRedis7IsRefusedAndNothingIsWritten(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	for _, text := range []string{guardedText, nextText} {
		old := strings.ReplaceAll(text, "REDIS_VERSION_NUM", "NO_SUCH_VALUE")
		err := rdb.Eval(t.Context(), old, []string{"k", "lockstile:f:{k}"}, "00000000000000000034", "write", "SET", "v").Err()
		if err == nil || !strings.Contains(err.Error(), "of Redis is too old") {
			t.Errorf("%v", err)
		}
	}
	if keys := srv.Do("KEYS", "*"); keys != "" {
		t.Errorf("it has left %s", keys)
	}
}
