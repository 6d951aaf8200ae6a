package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: who holds a lock while the password of its user is changed learns why it is lost, and so does
// whoever asks for one.
func TestPasswordThatWasChangedIsNamedInTheError(t *testing.T) {
	t.Parallel()
	cluster, ctx := testserver.Etcd(t, 1), aMinute(t)
	admin := process(t, cluster.Members[0]).store.client
	for _, user := range []string{"root", "app"} {
		_, err := admin.UserAdd(ctx, user, "sesame")
		if err == nil && user == "root" {
			_, err = admin.RoleAdd(ctx, "root")
		}
		if err == nil {
			_, err = admin.UserGrantRole(ctx, user, "root")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *Locker {
		t.Helper()
		return with(t, clientv3.Config{Endpoints: cluster.Endpoints(), Username: user, Password: "sesame", DialTimeout: 30 * time.Second, Logger: zap.NewNop()})
	}
	l := as("app")
	held, err := l.Lock(ctx, "x", locker.WithTTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := as("root").store.client.UserChangePassword(ctx, "app", "another"); err != nil {
		t.Fatal(err)
	}
	<-held.Lost()
	if err := held.Err(); !errors.Is(err, locker.ErrLost) || !strings.Contains(err.Error(), "password") {
		t.Errorf("the lock was lost: %v", err)
	}
	if _, err := l.TryLock(ctx, "y", locker.WithTTL(2*time.Second)); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "made: it never takes another one") {
		t.Errorf("TryLock: %v", err)
	}
}
