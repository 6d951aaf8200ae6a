package mailbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

// soon ends long after what tests wait for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A waiter may have gone when its word arrives. That must not end the connection, from
// which others wait for theirs.
func TestWordForNobodyDisturbsNobody(t *testing.T) {
	var connections atomic.Int64
	waiting := make(chan struct{})
	m := mailbox.New(func(ctx context.Context, m *mailbox.Mailbox) error {
		connections.Add(1)
		m.Ready("a channel")
		<-waiting
		m.Deliver(mailbox.Ask, "nobody")
		m.Deliver(mailbox.Ask, "somebody")
		<-ctx.Done()
		return ctx.Err()
	})
	defer m.Close()
	box := mailbox.NewBox()
	if err := m.Open(soon(t), "somebody", box.Put); err != nil {
		t.Fatal(err)
	}
	close(waiting)
	if err := box.Sleep(soon(t), time.Hour); err != nil {
		t.Error(err)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were opened for one waiter", n)
	}
}

// The reader has a goroutine of its own, where nobody can recover from a hook of the
// client's that panics.
func TestReaderInWhichAHookPanicsHasFailed(t *testing.T) {
	m := mailbox.New(func(context.Context, *mailbox.Mailbox) error { panic("the hook") })
	defer m.Close()
	var panicked *driver.PanicError
	if err := m.Open(soon(t), "somebody", mailbox.NewBox().Put); !errors.As(err, &panicked) {
		t.Errorf("Open: %v", err)
	}
}
