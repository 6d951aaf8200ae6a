package register_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

// unruly is a Store as one process reaches it: requests and answers take their time, are lost, and arrive when nobody waits any more;
// now and then the process cannot reach it at all.
type unruly struct {
	*registertest.Memory
	mu   sync.Mutex
	rand *rand.Rand
	away time.Time // until when
}

// fate is what becomes of a request.
type fate struct {
	out, back time.Duration
	lost      bool // the answer is
}

func (u *unruly) fate() (f fate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f.out, f.back = time.Duration(u.rand.ExpFloat64()*2e6), time.Duration(u.rand.ExpFloat64()*2e6)
	switch u.rand.IntN(60) {
	case 0:
		f.lost = true
	case 1:
		f.out = time.Duration(u.rand.IntN(4000)) * time.Millisecond
	case 2:
		f.back = time.Duration(u.rand.IntN(4000)) * time.Millisecond
	case 3:
		u.away = time.Now().Add(time.Duration(u.rand.IntN(5000)) * time.Millisecond)
	}
	f.out += max(0, time.Until(u.away))
	return f
}

// through carries out a request, also if its caller gives up meanwhile.
func through[T any](ctx context.Context, u *unruly, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	f, answered := u.fate(), make(chan answer, 1)
	go func() {
		time.Sleep(f.out)
		got, err := do(context.Background())
		time.Sleep(f.back)
		if !f.lost {
			answered <- answer{got, err}
		}
	}()
	select {
	case a := <-answered:
		return a.got, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (u *unruly) Get(ctx context.Context, name string) (register.Entry, error) {
	return through(ctx, u, func(ctx context.Context) (register.Entry, error) { return u.Memory.Get(ctx, name) })
}

func (u *unruly) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	return through(ctx, u, func(ctx context.Context) (string, error) { return u.Memory.Swap(ctx, name, version, record) })
}

// Watch tells late.
func (u *unruly) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	return u.Memory.Watch(ctx, name, func(e register.Entry) {
		time.Sleep(u.fate().back)
		tell(e)
	})
}

// polled hides that a Store pushes.
type polled struct{ register.Store }

// history is what all processes have seen of a name, in the order in which they did.
type history struct {
	mu     sync.Mutex
	held   map[*locker.Lock]locker.Kind
	last   fencing.Token
	grants int
}

// granted checks a grant against those that are still believed in.
func (h *history) granted(t *testing.T, l *locker.Lock, kind locker.Kind, slots int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants++
	if l.Err() != nil {
		return
	}
	for other, otherKind := range h.held {
		if other.Err() != nil {
			delete(h.held, other)
		} else if kind == locker.KindExclusive || otherKind == locker.KindExclusive || kind == locker.KindSlots && other.Slot() == l.Slot() {
			t.Errorf("%v and %v are believed in at once", other, l)
		}
	}
	if kind == locker.KindExclusive {
		if l.Token() <= h.last {
			t.Errorf("%v follows %d", l, h.last)
		}
		h.last = l.Token()
	}
	h.held[l] = kind
	if kind == locker.KindSlots && len(h.held) > slots {
		t.Errorf("%d have one of %d slots", len(h.held), slots)
	}
}

func (h *history) ends(l *locker.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, l)
}

func TestSimulation(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	m := new(registertest.Memory)
	opts := register.Options{Age: rng.IntN(2) == 0}
	names := map[string]*history{"exclusive": {}, "mixed": {}, "slots": {}}
	for _, h := range names {
		h.held = make(map[*locker.Lock]locker.Kind)
	}
	var all sync.WaitGroup
	for p := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(p)+1))
		var s register.Store = &unruly{Memory: m, rand: rand.New(rand.NewPCG(seed, uint64(p)+100))}
		if rng.IntN(2) == 0 {
			s = polled{s}
		}
		l := process(t, s, opts)
		for range 2 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
			all.Go(func() {
				for range 25 {
					use(t, l, names, rng)
				}
			})
		}
	}
	all.Wait()
	grants := 0
	for name, h := range names {
		grants += h.grants
		unlock(t, lock(t, process(t, m, opts), name, kindOf(name, rng.IntN(2))...))
	}
	time.Sleep(time.Minute) // until nothing is under way
	if grants < 50 {
		t.Errorf("%d grants: nothing is tested", grants)
	}
}

func kindOf(name string, n int) []locker.Option {
	switch {
	case name == "slots":
		return []locker.Option{locker.WithSlots(2)}
	case name == "mixed" && n == 0:
		return []locker.Option{locker.WithShared()}
	}
	return nil
}

// use locks a name, holds it for a while, and gives it back, or does not.
func use(t *testing.T, l locker.Locker, names map[string]*history, rng *rand.Rand) {
	name := []string{"exclusive", "mixed", "slots"}[rng.IntN(3)]
	n := rng.IntN(2)
	ttl := time.Duration(1+rng.IntN(3)) * time.Second
	opts := append(kindOf(name, n), locker.WithTTL(ttl))
	if rng.IntN(4) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	try := l.Lock
	if rng.IntN(3) == 0 {
		try = l.TryLock
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(10_000))*time.Millisecond)
	defer cancel()
	got, err := try(ctx, name, opts...)
	if err != nil {
		if errors.Is(err, locker.ErrRefused) || errors.Is(err, locker.ErrMismatch) {
			t.Error(err)
		}
		return
	}
	h, kind := names[name], locker.KindExclusive
	switch {
	case name == "slots":
		kind = locker.KindSlots
	case name == "mixed" && n == 0:
		kind = locker.KindShared
	}
	h.granted(t, got, kind, 2)
	time.Sleep(time.Duration(rng.IntN(int(2 * ttl))))
	h.ends(got)
	if rng.IntN(10) == 0 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = got.Unlock(ctx)
		return
	}
	_ = got.Unlock(t.Context())
}
