package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

// A caller whose context has no end does not wait for ever for servers that are silent.
//
//	no answer arrives; everything is asked that a Locker asks
func TestNobodyWaitsForSilentServersForEver(t *testing.T) {
	ctx := aMinute(t)
	l, p := proxied(t, testserver.Etcd(t, 1).Members[0])
	s, none := l.store, context.Background()
	free, slot, kept := begin(t, ctx, l, "free"), begin(t, ctx, l, "slots", kinds["slots"]...), begin(t, ctx, l, "kept")
	given, first, second := begin(t, ctx, l, "given"), begin(t, ctx, l, "x"), begin(t, ctx, l, "x")
	takes(t, ctx, l, kept, "")
	takes(t, ctx, l, given, "")
	takes(t, ctx, l, first, "")
	takes(t, ctx, l, second, first.key)
	p.CutReplies()
	questions := map[string]func() error{
		"ask":      func() error { _, err := s.ask(none, free, true); return err },
		"claim":    func() error { _, err := s.ask(none, slot, true); return err },
		"keep":     func() error { _, err := s.keep(none, kept, time.Minute); return err },
		"giveBack": func() error { return s.Withdraw(none, given) },
		"follow":   func() error { _, _, err := s.follow(none, second, first.key); return err },
		"queue":    func() error { _, err := s.queue(none, "x"); return err },
		"free": func() error {
			_, err := s.free(none, []*mvccpb.KeyValue{{Key: []byte(first.key), CreateRevision: first.place}})
			return err
		},
		"open": func() error { _, _, _, err := s.open(2*time.Hour, live{}); return err },
	}
	type answer struct {
		to  string
		err error
	}
	answers := make(chan answer, len(questions))
	for to, ask := range questions {
		go func() { answers <- answer{to, ask()} }()
	}
	for len(questions) > 0 {
		select {
		case a := <-answers:
			if !errors.Is(a.err, errSilent) {
				t.Errorf("%s ends with %v", a.to, a.err)
			}
			delete(questions, a.to)
		case <-ctx.Done():
			t.Fatalf("%d go on, such as %v", len(questions), questions)
		}
	}
}

// A client that has no connection yet does not keep a renewal from ending in time.
func TestStreamThatCannotBeOpenedIsGivenUp(t *testing.T) {
	p, err := netproxy.Listen(testserver.Etcd(t, 1).Members[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.Cut()
	l := at(t, p.Addr())
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, _, err := l.store.askOnNewStream(soon, 1); ended <- err }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it is answered")
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// Neither of the two requests of a renewal waits for the answer to the other.
//
//	no answer arrives; a session is renewed with a lock on it
func TestSessionIsRenewedWhileItsKeysAreListed(t *testing.T) {
	srv, ctx := testserver.Etcd(t, 1).Members[0], aMinute(t)
	l, p := proxied(t, srv)
	lock, err := l.Lock(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	lists := func() float64 { return srv.Metric(`grpc_server_started_total{grpc_method="LeaseTimeToLive"`) }
	before := lists()
	p.CutReplies()
	done := make(chan error, 1)
	go func() { done <- lock.Renew(ctx) }()
	for lists() == before && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	renewing(t, ctx, 1)
	p.Deliver()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The client sends each question to the next server in turn. One that hangs is no reason to
// have no answer.
//
//	a server of three hangs; each question is asked so often that each server is asked once
//
// Each is one request: the second of two could miss the server that hangs every time.
func TestWhatAHangingServerIsAskedIsAskedOfTheOthers(t *testing.T) {
	t.Parallel()
	cluster, ctx := testserver.Etcd(t, 3), aMinute(t)
	l := at(t, cluster.Endpoints()...)
	s, leader := l.store, cluster.Leader()
	first, second, gone := begin(t, ctx, l, "x"), begin(t, ctx, l, "x"), begin(t, ctx, l, "gone")
	takes(t, ctx, l, first, "")
	takes(t, ctx, l, second, first.key)
	takes(t, ctx, l, gone, "")
	if _, err := s.client.Delete(ctx, gone.key); err != nil {
		t.Fatal(err)
	}
	hangs := cluster.Members[0]
	if hangs == leader {
		hangs = cluster.Members[1]
	}
	hangs.Pause()
	defer hangs.Resume()
	for what, ask := range map[string]func() error{
		"queue": func() error { _, err := s.queue(ctx, "x"); return err },
		"timeLeft": func() error {
			_, err := s.timeLeft(ctx, int64(first.session.id), make(map[int64]time.Duration))
			return err
		},
		"look":    func() error { _, err := s.look(ctx, second, ""); return err },
		"lookFor": func() error { return s.Renew(ctx, []*attempt{first})[0] },
		"confirm": func() error {
			errs := make([]error, 1)
			s.confirm(ctx, gone.session, []*attempt{gone}, []int{0}, errs, locker.ReasonTakenOver)
			if lost := (*locker.LostError)(nil); errors.As(errs[0], &lost) {
				return nil
			}
			return errors.Join(errs[0], errors.New("the loss is not known"))
		},
	} {
		for range cluster.Members {
			if err := ask(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
