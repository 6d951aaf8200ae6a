package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// onlooker sees every grant of one name.
type onlooker struct {
	name   string
	pass   chan struct{} // who has the lock while all is still gives it back
	breaks bool          // somebody breaks locks of this name, which parts holders from exclusion, not from tokens

	mu     sync.Mutex
	held   map[*locker.Lock]string // and what is known of it
	newest fencing.Token
	grants int
}

// granted is called when Lock has returned. Who is lost already, for the machine
// was slow, is no evidence. Another is looked at first: if both believe, they did
// so at that moment. Tokens of locks that somebody breaks are only known to be
// above those that were seen before they were asked for: whoever was granted one
// may be slow to tell us, and others are granted theirs meanwhile.
func (o *onlooker) granted(t *testing.T, lock *locker.Lock, how string, before fencing.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var others []string
	for other, whose := range o.held {
		if other.Err() == nil {
			others = append(others, fmt.Sprintf("%s with token %d until %v", whose, other.Token(), other.Deadline()))
		}
	}
	if lock.Err() != nil {
		return
	}
	if len(others) > 0 && !o.breaks {
		t.Errorf("%s has %q with token %d, and so has %v", how, o.name, lock.Token(), others)
	}
	if !o.breaks {
		before = o.newest
	}
	if lock.Token() <= before {
		t.Errorf("%s has %q with token %d, which follows %d", how, o.name, lock.Token(), before)
	}
	o.newest = max(o.newest, lock.Token())
	o.held[lock] = how
	o.grants++
}

func (o *onlooker) gone(lock *locker.Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, lock)
}

// believed is the token that somebody believes in, or 0.
func (o *onlooker) believed() (token fencing.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for lock := range o.held {
		if lock.Err() == nil {
			token = max(token, lock.Token())
		}
	}
	return token
}

// holder is the process that believes in the lock, or -1.
func (o *onlooker) holder() (process int) {
	process = -1
	o.mu.Lock()
	defer o.mu.Unlock()
	for lock, whose := range o.held {
		if lock.Err() == nil {
			_, _ = fmt.Sscanf(whose, "process %d", &process)
		}
	}
	return process
}

func (o *onlooker) last() fencing.Token {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest
}

func (o *onlooker) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.grants
}

// storm is what the processes of the test share.
type storm struct {
	t         *testing.T
	server    *testserver.PostgresServer
	wires     []*wire
	onlookers []*onlooker
	still     atomic.Bool // whoever has a lock keeps it until it is lost
}

// Goal: at no time do two holders believe, and tokens increase, whatever is done
// with a lock when the server crashes or the network fails. Method: goroutines of
// several processes, most of which lose their network now and then, use a few names
// in all ways, while the server, which puts nothing on disk that nobody waits for,
// is killed again and again. An onlooker sees every grant. It goes on until crashes
// have taken back what holders believed in who heard of nothing.
func TestOneHolderBelievesAndTokensIncreaseOverCrashes(t *testing.T) {
	t.Parallel()
	s := &storm{t: t, server: testserver.Postgres(t, lazy...)}
	for i, name := range []string{"a", "b", "broken"} {
		s.onlookers = append(s.onlookers, &onlooker{name: name, pass: make(chan struct{}), breaks: i == 2, held: make(map[*locker.Lock]string)})
	}
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	defer func() { // also where a wait was in vain
		stop()
		s.still.Store(false)
		wait.Wait()
	}()
	for i, url := range []string{s.server.URL("postgres"), s.server.URL("postgres") + careless, s.server.URL("postgres"), s.server.URL("postgres") + careless} {
		pool, w := wired(t, url)
		l, err := postgres.New(pool, postgres.Options{})
		ready(t, l, err)
		if i < 3 {
			s.wires = append(s.wires, w)
		}
		for _, o := range s.onlookers {
			for worker := range 4 {
				wait.Go(func() { s.use(ctx, fmt.Sprintf("process %d, goroutine %d", i, worker), l, o) })
			}
		}
	}
	deadline := time.Now().Add(3 * patience)
	round, taken := 0, 0
	for ; taken < 2 && !t.Failed() && time.Now().Before(deadline); round++ {
		taken += s.round()
	}
	if taken == 0 {
		t.Errorf("none of %d crashes took back what a holder believed in who heard of nothing", round)
	}
	t.Logf("%d rounds, %d and %d grants", round, s.onlookers[0].count(), s.onlookers[1].count())
}

// round lets everybody work for a while, breaks something, and reports how many
// locks a crash took back from processes that did not hear of it.
func (s *storm) round() (taken int) {
	enough := s.onlookers[0].count() + 5 + rand.N(100)
	eventually(s.t, func() string {
		if s.onlookers[0].count() < enough {
			return "nobody gets a lock any more"
		}
		return ""
	})
	if rand.N(8) == 0 { // answers are lost, and that is all
		s.cut([]wireMode{deaf, slow, dying}[rand.N(3)])
		<-time.After(rand.N(300 * time.Millisecond))
		s.repair()
		return 0
	}
	if rand.N(6) == 0 { // in the middle of everything
		s.server.Kill()
		s.server.Start()
		s.repair()
		return 0
	}
	s.still.Store(true)
	s.settle(s.onlookers[rand.N(2)])
	s.cut(slow)
	s.server.Kill()
	var believed []fencing.Token
	for _, o := range s.onlookers[:2] {
		believed = append(believed, o.believed())
	}
	s.server.Start()
	taken = s.takenBack(believed)
	s.still.Store(false)
	s.repair()
	return taken
}

// settle has a lock handed over until a process that will hear of nothing has had
// it twice in a row, and after a while once more: a lease that such an heir started
// by itself would be much longer than the one that is on disk.
func (s *storm) settle(o *onlooker) {
	for range 20 {
		before := o.holder()
		s.passOn(o)
		if after := o.holder(); after >= 0 && after < len(s.wires) && after == before {
			<-time.After(rand.N(400 * time.Millisecond))
			s.passOn(o)
			return
		}
	}
}

// passOn has a lock handed over while nothing else goes on, if anybody has it.
func (s *storm) passOn(o *onlooker) {
	before := o.count()
	soon := time.After(50 * time.Millisecond)
	select {
	case o.pass <- struct{}{}:
	case <-soon:
	}
	for o.count() == before {
		select {
		case <-soon:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// takenBack counts the names of which the store has an earlier holder than the one
// who believes, and returns when somebody else has got these.
func (s *storm) takenBack(believed []fencing.Token) (n int) {
	pool, err := pgxpool.New(context.Background(), s.server.URL("postgres"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer pool.Close()
	for i, token := range believed {
		o := s.onlookers[i]
		there := query[fencing.Token](s.t, pool, `SELECT coalesce(max(token), 0) FROM lockstile_lock WHERE name = $1`, o.name)
		if there == 0 || there >= token || o.believed() != token {
			continue
		}
		n++
		eventually(s.t, func() string {
			if o.last() == token {
				return "nobody gets the lock after a crash"
			}
			return ""
		})
	}
	return n
}

func (s *storm) cut(mode wireMode) {
	for _, w := range s.wires {
		w.cut(mode)
	}
}

func (s *storm) repair() {
	for _, w := range s.wires {
		w.repair()
		w.close()
	}
}

// use takes one name after the other in all ways.
func (s *storm) use(ctx context.Context, who string, l *postgres.Locker, o *onlooker) {
	for ctx.Err() == nil {
		before := o.last()
		how, lock, err := s.take(l, o.name)
		if o.breaks && rand.N(30) == 0 {
			_, _ = l.Break(ctx, o.name)
		}
		if err != nil {
			if !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrUnavailable) &&
				!errors.Is(err, locker.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
				s.t.Errorf("%s: %s: %v", who, how, err)
			}
			<-time.After(rand.N(10 * time.Millisecond))
			continue
		}
		o.granted(s.t, lock, who+", "+how, before)
		s.keep(ctx, o, lock)
		err = lock.Unlock(context.Background())
		if err != nil && !errors.Is(err, locker.ErrLost) && !errors.Is(err, locker.ErrUnavailable) {
			s.t.Errorf("%s: Unlock: %v", who, err)
		}
		o.gone(lock)
	}
}

func (s *storm) take(l *postgres.Locker, name string) (how string, lock *locker.Lock, err error) {
	opts := []locker.Option{locker.WithTTL(2 * time.Second)}
	how = "Lock"
	switch rand.N(80) {
	case 0:
		how, opts = "with another TTL", []locker.Option{locker.WithTTL(1500 * time.Millisecond)}
	case 1:
		how, opts = "without renewal", append(opts, locker.WithoutRenewal())
	case 2:
		how, opts = "with a maximum hold", append(opts, locker.WithMaxHold(time.Second))
	case 3:
		how, opts = "with a minimum of validity", append(opts, locker.WithMinValidity(1900*time.Millisecond))
	case 4, 5, 6, 7:
		lock, err = l.TryLock(context.Background(), name, opts...)
		return "TryLock", lock, err
	}
	patience := 3 * time.Second
	if rand.N(8) == 0 && !s.still.Load() {
		patience = rand.N(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err = l.Lock(ctx, name, opts...)
	return how, lock, err
}

// keep returns when the lock may be given back.
func (s *storm) keep(ctx context.Context, o *onlooker, lock *locker.Lock) {
	switch rand.N(30) {
	case 0:
		_ = lock.Renew(ctx)
	case 1:
		go func() { _ = lock.Renew(ctx) }() // while it is given back
	case 2:
		<-time.After(rand.N(20 * time.Millisecond))
	}
	for s.still.Load() {
		select {
		case <-lock.Lost():
			return
		case <-o.pass:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
