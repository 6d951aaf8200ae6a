package kubelease_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/election"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/register/kubelease"
)

func Example() {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), cfg, "my-namespace"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, cfg *rest.Config, namespace string) error {
	cfg.QPS = -1 // the server has limits of its own (API Priority and Fairness)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	locks, err := kubelease.New(client.CoordinationV1(), namespace)
	if err != nil {
		return err
	}
	defer locks.Close()

	return locker.Do(ctx, locks, "invoices", func(ctx context.Context, lock *locker.Lock) error {
		log.Print("token ", lock.Token())
		return nil
	})
}

// lead leads whenever this replica is the leader, until ctx ends. Whatever is written carries the term's token: the storage refuses
// a leader that was paused and does not know that another one leads.
func lead(ctx context.Context, locks locker.Locker, guard fencing.Guard, write func(context.Context, fencing.Token) error) error {
	return election.Run(ctx, locks, "billing", func(ctx context.Context, term *locker.Lock) error {
		for {
			if err := write(ctx, term.Token()); err != nil {
				return err
			}
			select {
			case <-ctx.Done(): // the term is over
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}, locker.WithTTL(15*time.Second), locker.WithGuard(guard, "billing"))
}

func TestExamplesAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	quoted.Check(t, "README.md", "example_test.go")
}

func TestExampleRuns(t *testing.T) {
	if err := run(t.Context(), config(start(t)), namespace); err != nil {
		t.Error(err)
	}
}

// The leader is paused in the middle of a write, and another one leads meanwhile. When it goes on, the storage refuses it.
func TestWriteOfALeaderThatWasPausedIsRefused(t *testing.T) {
	srv := start(t)
	var storage fencing.Memory
	var cut atomic.Bool
	silent := through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if cut.Load() {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	})
	first, second := process(t, srv, silent), process(t, srv)
	began, goOn, late := make(chan fencing.Token, 1), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error, 2)
	go func() {
		ended <- lead(ctx, first, &storage, func(_ context.Context, token fencing.Token) error { // it does not look at its context
			began <- token
			<-goOn
			late <- storage.Check(context.Background(), "billing", token)
			<-ctx.Done()
			return nil
		})
	}()
	was := <-began
	cut.Store(true)
	go func() {
		ended <- lead(ctx, second, &storage, func(ctx context.Context, token fencing.Token) error {
			if token <= was {
				t.Errorf("token %d follows %d", token, was)
			}
			close(goOn)
			<-ctx.Done()
			return nil
		})
	}()
	if err := <-late; !errors.Is(err, fencing.ErrStale) {
		t.Errorf("the write of the first leader: %v", err)
	}
	cut.Store(false)
	cancel()
	for range cap(ended) {
		<-ended
	}
}
