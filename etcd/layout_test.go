package etcd_test

import (
	"errors"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// A later version of Lockstile may keep readers and slots in another way. Its keys then begin
// with another mark than ours, which is before them in the order of keys, and we must take
// what has such a key for a stranger who holds the lock alone.
func TestMarkOfALaterLayoutExcludesEveryKind(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLocker(t, client.Endpoints()...)
	for kind, opts := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(3)},
	} {
		t.Run(kind, func(t *testing.T) {
			later := kind + "/~2-shared-1f-a"
			if _, err := client.Put(patience(t), later, ""); err != nil {
				t.Fatal(err)
			}
			if held, err := l.TryLock(patience(t), kind, opts...); !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrMismatch) {
				t.Fatalf("TryLock: %v, %v; want taken, or a mismatch", held, err)
			}
			if got := keys(t, client, later); len(got) != 1 {
				t.Error("the key of the later layout has gone")
			}
			if _, err := client.Delete(patience(t), later); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, mustLock(t, l, kind, opts...))
		})
	}
}
