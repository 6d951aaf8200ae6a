package zookeeper_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// foreign is another library's lock: it carries out "lock" and "unlock", and says so.
type foreign interface {
	Do(verb string) (answer string, err error)
}

// zkLock is the zk client's own.
type zkLock struct{ *zk.Lock }

func (l zkLock) Do(verb string) (string, error) {
	if verb == "unlock" {
		return "unlocked", l.Unlock()
	}
	return "locked", l.Lock.Lock()
}

func TestLocksOfOtherLibrariesExcludeOursAndOursThem(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	path := func(name string) string { return zookeeper.DefaultBase + "/" + name }
	for name, start := range map[string]func(*testing.T) foreign{
		"zk.Lock": func(t *testing.T) foreign {
			return zkLock{zk.NewLock(newClient(t, sessionTimeout, s.Addr()).conn, path("zk.Lock"), zk.WorldACL(zk.PermAll))}
		},
		"curator": func(t *testing.T) foreign { return testserver.CuratorLock(t, s, path("curator")) },
		"kazoo":   func(t *testing.T) foreign { return testserver.KazooLock(t, s, path("kazoo"), "-lock-") },
	} {
		t.Run(name, func(t *testing.T) {
			theirs := start(t)
			for range 3 {
				excludesEachOther(t, c, name, theirs)
				excludesEachOther(t, c, name, theirs, locker.WithShared())
			}
		})
	}
}

func excludesEachOther(t *testing.T, ours client, name string, theirs foreign, opts ...locker.Option) {
	held := lock(t, ours, name, opts...)
	done := make(chan error, 1)
	go func() { _, err := theirs.Do("lock"); done <- err }()
	waiters(t, ours, name, 1)
	select {
	case err := <-done:
		t.Fatalf("theirs is locked while we hold: %v", err)
	default:
	}
	unlock(t, held)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := ours.TryLock(soon(t), name, opts...); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock while theirs is locked: %v", err)
	}
	go func() {
		lk, err := ours.Lock(soon(t), name, opts...)
		if err == nil {
			err = lk.Unlock(soon(t))
		}
		done <- err
	}()
	waiters(t, ours, name, 1)
	if _, err := theirs.Do("unlock"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// As it comes, kazoo's Lock takes no notice of ours. We take notice of it in any case.
func TestKazoosLockIsNotExcludedUnlessItIsToldOfOurNodes(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	held := lock(t, c, "n")
	theirs := testserver.KazooLock(t, s, zookeeper.DefaultBase+"/n")
	if got, err := theirs.Do("try"); err != nil || got != "locked" {
		t.Errorf("beside a lock of ours, kazoo's is %s, %v: say so in the package's doc", got, err)
	}
	unlock(t, held)
	if _, err := c.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock while kazoo's is locked: %v", err)
	}
}
