package registertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/register"
)

// A slow request of a process that has ended would write into a directory that is being removed, or ask a server that is stopped.
func TestRequestThatArrivesAfterTheTestReachesNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := lockertest.NewLink()
		f := &far{store: new(Memory), link: link}
		link.Delay(time.Second)
		asked := make(chan error, 1)
		go func() {
			_, err := f.behind().Swap(t.Context(), "x", "", []byte("record"))
			asked <- err
		}()
		synctest.Wait()
		f.end()
		if err := <-asked; !errors.Is(err, errEnded) {
			t.Errorf("the request that was late: %v, want %v", err, errEnded)
		}
		if e, err := f.store.Get(context.Background(), "x"); err != nil || e.Version != "" {
			t.Errorf("the store has %+v, %v", e, err)
		}
	})
}

// A call that is under way may still write.
func TestEndWaitsForTheCallsOfTheStore(t *testing.T) {
	s := &slow{Store: new(Memory), began: make(chan struct{}), goOn: make(chan struct{})}
	f := &far{store: s, link: lockertest.NewLink()}
	go func() { _, _ = f.behind().Swap(context.Background(), "x", "", []byte("record")) }()
	<-s.began
	time.AfterFunc(10*time.Millisecond, func() { close(s.goOn) })
	f.end()
	if !s.written.Load() {
		t.Error("a call is under way, and its test has ended")
	}
}

type slow struct {
	register.Store
	began, goOn chan struct{}
	written     atomic.Bool
}

func (s *slow) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	close(s.began)
	<-s.goOn
	defer s.written.Store(true)
	return s.Store.Swap(ctx, name, version, record)
}
