package open_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func TestZooKeeperByURL(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, 1)[0]
	addr := s.Addr()
	works(t, mustOpen(t, "zk://"+addr))
	works(t, mustOpen(t, "zk://"+addr+",127.0.0.1:1,host.invalid/some/base?session_timeout=5s"))
	mustHold(t, mustOpen(t, "zk://"+addr+"/some/base"), "x")
	if _, err := mustOpen(t, "zk://"+addr+"/some/base/").TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock below the same base: %v", err)
	}
	mustHold(t, mustOpen(t, "zk://"+addr), "x") // another node
	s.Kill()
	silent(t, "zk://"+addr, addr, "connection refused")
	silent(t, "zk://u:secret@"+addr, addr, "connection refused")
	silent(t, "zk://u:secret@host.invalid", "host.invalid:2181")
}

// The session's timeout is the least TTL that a lock may have.
func TestZooKeeperSessionTimeoutReachesTheServer(t *testing.T) {
	t.Parallel()
	addr := testserver.ZooKeeper(t, 1)[0].Addr()
	short, usual := mustOpen(t, "zk://"+addr+"?session_timeout=6s"), mustOpen(t, "zk://"+addr)
	lock, err := short.TryLock(patience(t), "x", locker.WithTTL(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(patience(t)); err != nil {
		t.Error(err)
	}
	if _, err := usual.TryLock(patience(t), "x", locker.WithTTL(9*time.Second)); err == nil || !strings.Contains(err.Error(), "session timeout of 10s") {
		t.Errorf("a TTL under the session timeout: %v", err)
	}
}

// What one user has locked, others can neither take nor break.
func TestZooKeeperUserAndPassword(t *testing.T) {
	t.Parallel()
	const pass = `p@s:s/w?r#d%41,+&= "secret`
	addr := testserver.ZooKeeper(t, 1)[0].Addr()
	mine := mustOpen(t, "zk://me:"+escapeLess(pass)+"@"+addr+"/mine")
	works(t, mine)
	mustHold(t, mine, "x")
	works(t, mustOpen(t, "zk://me:"+escapeLess(pass)+"@"+addr+"/mine"))
	refused(t, "zk://me:secret@"+addr+"/mine", addr, "/mine may not be read", "password")
	refused(t, "zk://nobody:secret@"+addr+"/mine", addr, "not authenticated")
	refused(t, "zk://"+addr+"/mine", addr, "not authenticated")
}

func TestZooKeeperThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, 1)[0]
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
	if _, err := open.URL(ctx, "zk://u:secret@"+s.Addr()); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("a cancelled attempt: %v", err)
	}
	silent(t, "zk://u:secret@"+s.Addr(), s.Addr(), "no answer within 5s")
}

// The base is everybody's, and the node of the lock is not.
func TestLockThatWasMadeByAnotherUserSaysSo(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, 1)[0]
	anybody := mustOpen(t, "zk://"+s.Addr()+"/locks")
	_ = mustHold(t, anybody, "mine")
	_ = mustHold(t, mustOpen(t, "zk://u:secret@"+s.Addr()+"/locks"), "theirs")
	_, err := anybody.TryLock(patience(t), "theirs")
	if !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "its ACL is that of the user") {
		t.Error(err)
	}
}
