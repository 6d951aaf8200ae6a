package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// onlooker sees every grant of one name, which may have readers.
type onlooker struct {
	name    string
	readers bool

	mu     sync.Mutex
	held   map[*locker.Lock]string // and whose it is
	newest fencing.Token
	read   fencing.SharedToken // the newest
	grants int
}

// granted is called when Lock has returned. A holder that has lost already, because the
// machine was slow, proves nothing. The other holder is looked at first: if both believe,
// they believed at that moment.
func (o *onlooker) granted(t *testing.T, lock *locker.Lock, who string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var others []string
	for other, whose := range o.held {
		if other.Err() == nil && (lock.SharedToken() == 0 || other.SharedToken() == 0) {
			others = append(others, fmt.Sprintf("%s with token %d or number %d until %v", whose, other.Token(), other.SharedToken(), other.Deadline()))
		}
	}
	if lock.Err() != nil {
		return
	}
	mine, before := lock.Token(), max(o.newest, fencing.Token(o.read))
	if lock.SharedToken() != 0 {
		mine, before = fencing.Token(lock.SharedToken()), o.newest
	}
	if len(others) > 0 {
		t.Errorf("%s has %q with token %d, and so has %v", who, o.name, mine, others)
	}
	if mine <= before {
		t.Errorf("%s has %q with token %d, which follows %d", who, o.name, mine, before)
	}
	o.newest, o.read = max(o.newest, lock.Token()), max(o.read, lock.SharedToken())
	o.held[lock] = who
	o.grants++
}

func (o *onlooker) gone(lock *locker.Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, lock)
}

func (o *onlooker) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.grants
}

// Goal: at no time do two holders believe who do not both read, and tokens increase, whatever is done
// with a lock when the server crashes or the network fails. Method: goroutines of
// several processes use a few names, while their networks fail and the server, which
// puts nothing on disk that nobody waits for, is killed again and again. An onlooker
// sees every grant.
func TestOneHolderBelievesAndTokensIncreaseOverCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	names := []*onlooker{
		{name: "a", held: make(map[*locker.Lock]string)},
		{name: "b", readers: true, held: make(map[*locker.Lock]string)},
	}
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	var wires []*wire
	for i, url := range []string{server.URL("postgres"), server.URL("postgres") + careless, server.URL("postgres")} {
		pool, w := wired(t, url)
		l, err := postgres.New(pool, postgres.Options{})
		ready(t, l, err)
		wires = append(wires, w)
		for _, o := range names {
			for worker := range 3 {
				wait.Go(func() { o.use(ctx, t, fmt.Sprintf("process %d, goroutine %d", i, worker), l) })
			}
		}
	}
	for round := 0; round < 12 && !t.Failed(); round++ {
		enough := names[0].count() + 5 + rand.N(100)
		eventually(t, func() string {
			if names[0].count() < enough {
				return "nobody gets a lock any more"
			}
			return ""
		})
		for _, w := range wires[:round%3] {
			w.cut([]wireMode{deaf, slow, dying}[rand.N(3)])
		}
		if round%4 > 0 {
			server.Kill()
			server.Start()
		}
		for _, w := range wires {
			w.repair()
			w.close()
		}
	}
}

// use takes the name in all ways.
func (o *onlooker) use(ctx context.Context, t *testing.T, who string, l *postgres.Locker) {
	for ctx.Err() == nil {
		lock, err := o.take(l)
		if err != nil {
			if !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrUnavailable) &&
				!errors.Is(err, locker.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", who, err)
			}
			<-time.After(rand.N(10 * time.Millisecond))
			continue
		}
		o.granted(t, lock, who)
		switch rand.N(30) {
		case 0:
			_ = lock.Renew(ctx)
		case 1:
			go func() { _ = lock.Renew(ctx) }() // while it is given back
		case 2:
			<-time.After(rand.N(20 * time.Millisecond))
		}
		err = lock.Unlock(context.Background())
		if err != nil && !errors.Is(err, locker.ErrLost) && !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%s: Unlock: %v", who, err)
		}
		o.gone(lock)
	}
}

func (o *onlooker) take(l *postgres.Locker) (*locker.Lock, error) {
	opts := []locker.Option{locker.WithTTL(2 * time.Second)}
	if o.readers && rand.N(3) > 0 {
		opts = append(opts, locker.WithShared())
	}
	if rand.N(20) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	if rand.N(20) == 0 || o.readers && rand.N(2) == 0 { // so that often nobody waits
		return l.TryLock(context.Background(), o.name, opts...)
	}
	patience := 3 * time.Second
	if rand.N(8) == 0 {
		patience = rand.N(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return l.Lock(ctx, o.name, opts...)
}
