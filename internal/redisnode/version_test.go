package redisnode

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: a server that is older than Redis 7.0 is refused by its version before anything is
// written. It is told by a value that scripts do not find there: here they look for one
// that no server has.
func TestServerOlderThanRedis7IsRefusedAndNothingIsWritten(t *testing.T) {
	srv := testserver.Redis(t)
	for name, s := range map[string]*script{"alone": acquire, "of a quorum": acquireOfQuorum} {
		n, _ := client(t, srv.Addr())
		n.acquire = scriptOf(strings.ReplaceAll(s.text.(string), "REDIS_VERSION_NUM", "NO_SUCH_VALUE"))
		a := newAttempt(t, "a")
		_, err := n.Acquire(background(t), a, Ask{Queue: true})
		_, version, _ := strings.Cut(srv.Do("INFO", "server"), "redis_version:")
		version, _, _ = strings.Cut(version, "\r")
		if !errors.Is(err, locker.ErrUnavailable) || !Refused(err) || !strings.Contains(err.Error(), "version "+version+" of Redis is too old") || a.Unsure() {
			t.Errorf("%s: refused %v, unsure %v: %v", name, Refused(err), a.Unsure(), err)
		}
	}
	if keys := srv.Do("KEYS", "*"); keys != "" {
		t.Errorf("it has left %s", keys)
	}
}
