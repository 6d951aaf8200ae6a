package register_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/singlenode"
)

// backend is the [driver.Store] of a backend as a side. Outside of its package nobody can name the type of its attempts, and only its
// Locker has it: so it is taken from there, and called, by reflection.
type backend struct {
	store reflect.Value
	name  string
	move  func(d time.Duration) // moves the store's clock

	real time.Time // until when the store's clock is right, if it has one of its own
	late time.Duration
}

// storeOf returns the Store of a Locker.
func storeOf(l driver.Methods) reflect.Value {
	field := reflect.ValueOf(l).Elem().FieldByName("store")
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Elem()
}

// mostLate is for how long the machine may stand still between a look at the clock and an answer.
const mostLate = rest - 10*time.Millisecond

// call calls a method, and returns its results without the error, which is the last.
func (b *backend) call(method string, args ...any) (results []reflect.Value, err error) {
	if b.stands() > 20*time.Millisecond {
		b.Pass(0)
	}
	in := make([]reflect.Value, len(args))
	for i, arg := range args {
		if v, ok := arg.(reflect.Value); ok {
			in[i] = v
		} else {
			in[i] = reflect.ValueOf(arg)
		}
	}
	out := b.store.MethodByName(method).Call(in)
	b.late = max(b.late, b.stands())
	if failed := out[len(out)-1]; failed.Kind() == reflect.Interface {
		err, _ = failed.Interface().(error)
		return out[:len(out)-1], err
	}
	return out, nil
}

// stands is for how long time has passed that the sequence does not know of.
func (b *backend) stands() time.Duration {
	if b.real.IsZero() {
		return 0
	}
	return time.Since(b.real)
}

// Pass implements side. It takes back what has passed by itself.
func (b *backend) Pass(d time.Duration) {
	d -= b.stands()
	if !b.real.IsZero() {
		b.real = time.Now()
	}
	b.move(d)
}

func (b *backend) Begin(req *driver.Request) any {
	out, err := b.call("Begin", req)
	if err != nil {
		panic(err)
	}
	return out[0]
}

// Acquire asks once: who waits is told at once that it need not wait any longer, and keeps its place.
func (b *backend) Acquire(attempt any, waits bool) (driver.Grant, error) {
	var wait driver.Wait
	ended, end := context.WithCancel(context.Background())
	end()
	if waits {
		wait = func() context.Context { return ended }
	}
	out, err := b.call("Acquire", context.Background(), attempt, wait)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return out[0].Interface().(driver.Grant), err
}

func (b *backend) Renew(attempt any) error {
	of := attempt.(reflect.Value)
	out, err := b.call("Renew", context.Background(), reflect.Append(reflect.MakeSlice(reflect.SliceOf(of.Type()), 0, 1), of))
	if err != nil {
		return err
	}
	return out[0].Interface().([]error)[0]
}

func (b *backend) Release(attempt any, keep time.Duration) error {
	_, err := b.call("Release", context.Background(), attempt, keep)
	return err
}

func (b *backend) Withdraw(attempt any) error {
	_, err := b.call("Withdraw", context.Background(), attempt)
	return err
}

func (b *backend) Break(n locker.Number) (bool, error) {
	out, err := b.call("Break", context.Background(), b.name, n)
	return out[0].Bool(), err
}

func (b *backend) Inspect() (locker.Info, error) {
	out, err := b.call("Inspect", context.Background(), b.name)
	return out[0].Interface().(locker.Info), err
}

// inMemory returns lockertest's store in a bubble, whose clock moves while all sleep.
func inMemory(*testing.T) func(name string) *backend {
	return func(name string) *backend {
		return &backend{store: storeOf(lockertest.New().Methods), name: name, move: time.Sleep}
	}
}

// redisClock moves the clock for one name: whatever ends, ends earlier by that. Marks stay, by which a client hears that its lock was broken:
// the record never forgets, and a store does after a minute or more.
const redisClock = `
for _, key in ipairs(redis.call('KEYS', '*' .. ARGV[1] .. '*')) do
	local left = redis.call('PTTL', key)
	if string.find(key, '^lockstile:[ed]:') then
		for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[2], member) end
	end
	if left > 0 and not string.find(key, '^lockstile:m:') then redis.call('PEXPIRE', key, left - ARGV[2]) end
end`

func onRedis(t *testing.T) func(name string) *backend {
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := singlenode.New(rdb, singlenode.Options{})
	holder, _ := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listen(t, holder, l)
	return func(name string) *backend {
		return &backend{store: storeOf(l.Methods), name: name, real: time.Now(), move: func(d time.Duration) {
			if err := rdb.Eval(context.Background(), redisClock, nil, name, d.Milliseconds()).Err(); err != nil && err != redis.Nil {
				t.Fatal(err)
			}
		}}
	}
}

func onPostgres(t *testing.T) func(name string) *backend {
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t).URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l, err := postgres.New(pool, postgres.Options{})
	if err == nil {
		err = l.EnsureSchema(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	holder, _ := postgres.New(pool, postgres.Options{})
	listen(t, holder, l)
	return func(name string) *backend {
		return &backend{store: storeOf(l.Methods), name: name, real: time.Now(), move: func(d time.Duration) {
			by := fmt.Sprintf("interval '%d milliseconds'", d.Milliseconds())
			if _, err := pool.Exec(context.Background(), `UPDATE lockstile_lease SET expires = expires - `+by+` WHERE name = '`+name+`';
				UPDATE lockstile_queue SET patient = patient - `+by+` WHERE name = '`+name+`'`); err != nil {
				t.Fatal(err)
			}
		}}
	}
}

// listen has the process of waiter listen until the test ends: it waits for a lock of another name all the time. Else the store would
// take its waiters for dead, which wait for a moment only.
func listen(t *testing.T, holder, waiter interface {
	locker.Locker
	locker.Inspector
}) {
	lock(t, holder, "another name", locker.WithTTL(locker.MaxTTL))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _, _ = waiter.Lock(ctx, "another name", locker.WithTTL(locker.MaxTTL)) }()
	locktest.Waits(t, holder, "another name")
}
