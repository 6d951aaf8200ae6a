package singlenode_test

import (
	"errors"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// A later version of Lockstile may keep readers and slots in another way. It then marks the
// lock's key with another word than ours, and we must take such a lock for a stranger's.
func TestMarkOfALaterLayoutExcludesEveryKind(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	for name, mark := range map[string]string{"readers": "#lockstile2", "slots": "3#lockstile2"} {
		for kind, opts := range map[string][]locker.Option{
			"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(3)},
		} {
			t.Run(name+" keep out "+kind, func(t *testing.T) {
				name := name + "/" + kind
				srv.Do("SET", name, mark, "PX", "60000")
				if held, err := l.TryLock(patience(t), name, opts...); !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrMismatch) {
					t.Fatalf("TryLock: %v, %v; want taken, or a mismatch", held, err)
				}
				if got := srv.Do("GET", name); got != mark {
					t.Errorf("the key of the later layout is %q now", got)
				}
				srv.Do("DEL", name)
				mustUnlock(t, mustLock(t, l, name, opts...))
			})
		}
	}
}
