package driver_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

// What follows is a complete backend, on one Redis, for docs/BACKENDS.md. It is simple:
// its waiters poll, are not served in order, and it has no Inspect and no Break.

// try is one attempt at a name, and the hold that comes of it.
type try struct {
	req   *driver.Request
	value string // of the lock's key: nobody else's
}

// small is a [driver.Store].
type small struct{ rdb *redis.Client }

// newSmall makes a client that gives up at a deadline and sends no request twice by
// itself: a second release would find nothing, and look like a loss.
func newSmall(addr string) (*driver.Locker[*try], *redis.Client) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	return driver.New("small", &small{rdb}, driver.Options{}), rdb
}

func (s *small) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.AgreedClocks | locker.DurableServer | locker.DurableReplica,
		Tokens:    locker.DurableServer | locker.DurableReplica,
		FreedBy:   locker.FreedByExpiry,
	}
}

func (s *small) Begin(req *driver.Request) (*try, error) {
	return &try{req: req, value: rand.Text()}, nil
}

// acquire answers the first of 64 tokens, 0 if somebody else has the lock, or -1 if the
// attempt was withdrawn. Sent again it answers the same and starts the lease anew.
var acquire = redis.NewScript(`
if redis.call('EXISTS', KEYS[3]) == 1 then return -1 end
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if held then return redis.call('GET', KEYS[2]) - 63 end
return redis.call('INCRBY', KEYS[2], 64) - 63`)

func (s *small) Acquire(ctx context.Context, t *try, wait driver.Wait) (driver.Grant, driver.Left, error) {
	for {
		since := driver.Now() // before the request is sent
		first, err := s.run(ctx, acquire, t)
		switch {
		case err != nil:
			return driver.Grant{}, driver.Unsure, err
		case first < 0:
			return driver.Grant{}, driver.Unsure, errors.New("the attempt was withdrawn")
		case first > 0:
			return driver.Grant{First: uint64(first), Count: 64, Since: since}, driver.Nothing, nil
		case wait == nil:
			return driver.Grant{}, driver.Nothing, nil
		}
		ctx = wait()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return driver.Grant{}, driver.Nothing, context.Cause(ctx)
		}
	}
}

// run bounds each request: whether to go on waiting for a silent server is the driver's
// decision.
func (s *small) run(ctx context.Context, script *redis.Script, t *try) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	keys := []string{"lock:" + t.req.Name, "token:" + t.req.Name, "mark:" + t.value}
	return driver.Within(ctx, nil, func() (int64, error) { // the client does not notice that ctx was cancelled
		return script.Eval(ctx, s.rdb, keys, t.value, t.req.TTL.Milliseconds()).Int64() // one request, whatever the server has seen
	})
}

var renew = redis.NewScript(`
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`)

func (s *small) Renew(ctx context.Context, ts []*try) []error {
	errs := make([]error, len(ts))
	for i, t := range ts {
		errs[i] = s.ours(s.run(ctx, renew, t))
	}
	return errs
}

func (s *small) ours(n int64, err error) error {
	if err == nil && n == 0 {
		return &locker.LostError{Reason: locker.ReasonTakenOver}
	}
	return err
}

// release refuses what may yet arrive, for as long as a network may hold it back.
var release = redis.NewScript(`
redis.call('SET', KEYS[3], '', 'PX', ARGV[2] + 60000)
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

func (s *small) Release(ctx context.Context, t *try, _ time.Duration) error {
	return s.ours(s.run(ctx, release, t))
}

func (s *small) Withdraw(ctx context.Context, t *try) error {
	_, err := s.run(ctx, release, t)
	return err
}

func TestSmallBackendPassesConformance(t *testing.T) {
	srv := testserver.Redis(t)
	conformance.Run(t, conformance.Harness{New: func(t testing.TB) conformance.Process {
		p := conformance.NewProxy(t, srv.Addr())
		l, rdb := newSmall(p.Addr())
		t.Cleanup(func() { _, _ = l.Close(), rdb.Close() })
		return conformance.Process{Locker: l, Network: p}
	}})
}
