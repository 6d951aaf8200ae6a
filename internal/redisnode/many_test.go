package redisnode

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
	"github.com/lockstile/locker/internal/testserver"
)

// crowded is a name that a stranger has made large, and what is asked of it then. Its work is
// that of one script.
type crowded struct {
	what string
	make func(b *big)
	ask  func(b *big) error
}

// big is a name called "a" on a server, with so many waiters or readers.
type big struct {
	testing.TB
	srv  *testserver.RedisServer
	n    *Node
	size int
	mine *Attempt // who asks
}

var crowds = []crowded{
	{"release to readers that wait", func(b *big) { b.hold(locker.KindExclusive); b.wait("#", b.n.id) }, (*big).release},
	{"release past dead waiters", func(b *big) { b.hold(locker.KindExclusive); b.wait("", "nobody") }, (*big).release},
	{"release that keeps, past dead waiters", func(b *big) { b.hold(locker.KindExclusive); b.wait("", "nobody") }, func(b *big) error {
		return b.n.Release(context.Background(), b.mine, time.Second)
	}},
	{"release of a reader past dead writers", func(b *big) { b.hold(locker.KindShared); b.read(time.Hour); b.wait("", "nobody") }, (*big).release},
	{"withdrawal past dead waiters", func(b *big) { b.hold(locker.KindExclusive); b.wait("", "nobody") }, func(b *big) error {
		return b.n.Withdraw(context.Background(), b.mine)
	}},
	{"look beside readers", func(b *big) { b.hold(locker.KindShared); b.read(time.Hour) }, func(b *big) error {
		v, err := b.n.Look(context.Background(), b.mine.Keys)
		if err == nil && len(v.Holders) != b.size+1 {
			err = fmt.Errorf("it shows %d holders", len(v.Holders))
		}
		return err
	}},
	{"raise beside readers", func(b *big) { b.hold(locker.KindShared); b.read(time.Hour) }, func(b *big) error {
		_, err := b.n.Raise(context.Background(), b.mine, 1<<52)
		return err
	}},
	{"renewal beside readers", func(b *big) { b.hold(locker.KindShared); b.read(time.Hour) }, func(b *big) error {
		return b.n.Renew(context.Background(), []*Attempt{b.mine})[0]
	}},
	{"try after readers that ended", func(b *big) { b.read(-time.Hour) }, (*big).grant},
	{"try beside a reader, after others that ended", func(b *big) { b.hold(locker.KindShared); b.read(-time.Hour) }, func(b *big) error {
		_, err := b.n.Acquire(context.Background(), b.attempt(locker.KindExclusive), Ask{})
		return err
	}},
	{"wait behind dead waiters", func(b *big) { b.hold(locker.KindExclusive); b.wait("", "nobody") }, func(b *big) error {
		_, err := b.n.Acquire(context.Background(), b.attempt(locker.KindExclusive), Ask{Queue: true})
		return err
	}},
}

func (b *big) attempt(kind locker.Kind) *Attempt {
	b.Helper()
	opts := []locker.Option{locker.WithTTL(time.Hour)} // a crowd may take a minute to make
	if kind == locker.KindShared {
		opts = append(opts, locker.WithShared())
	}
	req, err := driver.NewRequest(nil, "a", opts...)
	if err != nil {
		b.Fatal(err)
	}
	a := &Attempt{Terms: new(Terms)}
	if err := a.Init(req, ""); err != nil {
		b.Fatal(err)
	}
	return a
}

// hold has the one who asks hold the lock.
func (b *big) hold(kind locker.Kind) {
	b.Helper()
	b.mine = b.attempt(kind)
	if err := b.grant(); err != nil {
		b.Fatal(err)
	}
}

func (b *big) grant() error {
	if b.mine == nil {
		b.mine = b.attempt(locker.KindExclusive)
	}
	if s, err := b.n.Acquire(context.Background(), b.mine, Ask{}); err != nil || s.First == 0 {
		return fmt.Errorf("not granted: %+v, %w", s, err)
	}
	return nil
}

func (b *big) release() error { return b.n.Release(context.Background(), b.mine, 0) }

// wait fills the queue with waiters of a process.
func (b *big) wait(kind, of string) {
	b.Helper()
	b.fill(func(pipe redis.Pipeliner, i int) {
		pipe.ZAdd(context.Background(), "lockstile:q:{a}", redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("%s%027d:%s", kind, i, of)})
	})
}

// read fills the name with readers whose leases end in so much time.
func (b *big) read(left time.Duration) {
	b.Helper()
	end := time.Now().Add(left).UnixMilli()
	b.fill(func(pipe redis.Pipeliner, i int) {
		value := fmt.Sprintf("#%027d", i)
		pipe.ZAdd(context.Background(), "lockstile:e:{a}", redis.Z{Score: float64(end), Member: value})
		pipe.HSet(context.Background(), "lockstile:h:{a}", value, fmt.Sprintf("%d -1 a reader", i+1))
	})
}

func (b *big) fill(one func(pipe redis.Pipeliner, i int)) {
	b.Helper()
	pipe := b.n.rdb.Pipeline()
	for i := range b.size {
		one(pipe, i)
		if i%1000 == 999 || i == b.size-1 {
			if _, err := pipe.Exec(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// newBig returns the name, and an end for what it needs.
func newBig(tb testing.TB, srv *testserver.RedisServer, size int) (b *big, end func()) {
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	srv.Do("FLUSHALL")
	b = &big{tb, srv, New(rdb, 0), size, nil}
	if err := b.n.mail.Open(context.Background(), "somebody", mailbox.NewBox().Put); err != nil { // so that it listens
		tb.Fatal(err)
	}
	return b, func() {
		b.n.mail.Close()
		_ = rdb.Close()
	}
}

// statistics of the server's since the last "CONFIG RESETSTAT".
var (
	scriptStat = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+),usec=(\d+)`)
	callStat   = regexp.MustCompile(`cmdstat_[^:]+:calls=(\d+)`)
)

// work is how many scripts have run, for how many microseconds, and how many commands they gave.
func (b *big) work() (scripts, micros, commands int) {
	b.Helper()
	text := b.srv.Do("INFO", "commandstats")
	for _, m := range scriptStat.FindAllStringSubmatch(text, -1) {
		calls, _ := strconv.Atoi(m[1])
		usec, _ := strconv.Atoi(m[2])
		scripts, micros = scripts+calls, micros+usec
	}
	for _, m := range callStat.FindAllStringSubmatch(text, -1) {
		calls, _ := strconv.Atoi(m[1])
		commands += calls
	}
	return scripts, micros, commands
}

// The server does nothing else while a script runs. What a stranger can make large costs each
// call a bounded number of commands, and the rest is left to the next call.
func TestScriptsAreBoundedWhateverIsLarge(t *testing.T) {
	srv := testserver.Redis(t)
	for _, m := range crowds {
		b, end := newBig(t, srv, 5000)
		m.make(b)
		srv.Do("CONFIG", "RESETSTAT")
		if err := m.ask(b); err != nil {
			t.Errorf("%s: %v", m.what, err)
		}
		scripts, _, commands := b.work()
		if scripts == 0 || commands > 3500*scripts {
			t.Errorf("%s: %d commands in %d scripts", m.what, commands, scripts)
		}
		end()
	}
}

// BenchmarkManyOfAName reports how long one script takes on the server.
func BenchmarkManyOfAName(b *testing.B) {
	srv := testserver.Redis(b)
	for _, m := range crowds {
		for _, size := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", m.what, size), func(b *testing.B) {
				total, calls := 0, 0
				for range b.N {
					big, end := newBig(b, srv, size)
					m.make(big)
					srv.Do("CONFIG", "RESETSTAT")
					if err := m.ask(big); err != nil {
						b.Error(err)
					}
					scripts, micros, _ := big.work()
					total, calls = total+micros, calls+scripts
					end()
				}
				b.ReportMetric(float64(total)/float64(calls), "µs/script")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
