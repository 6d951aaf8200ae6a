package natskv_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	lockstile "github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/natskv"
)

// counting counts what is asked of the Store in the bucket.
type counting struct {
	register.Store
	register.Watcher
	register.Lister
	gets, swaps *atomic.Int64
}

func (c counting) Get(ctx context.Context, name string) (register.Entry, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, name)
}

func (c counting) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	c.swaps.Add(1)
	return c.Store.Swap(ctx, name, version, record)
}

// Beside the lock it shows what its two writes cost alone.
func BenchmarkLock(b *testing.B) {
	srv := testserver.NATS(b)
	js := connect(b, srv.URL())
	kv := bucket(b, js, jetstream.KeyValueConfig{})
	var gets, swaps atomic.Int64
	locker := func() *register.Locker {
		s, like := store(b, connect(b, srv.URL()))
		l, err := register.New(counting{s, s, s, &gets, &swaps}, like)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		return l
	}
	turn := func(l *register.Locker, name string) {
		got, err := l.Lock(b.Context(), name)
		if err == nil {
			err = got.Unlock(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	measure := func(b *testing.B, f func()) {
		f() // the first one probes
		gets.Store(0)
		swaps.Store(0)
		for b.Loop() {
			f()
		}
		b.ReportMetric(float64(gets.Load())/float64(b.N), "gets/op")
		b.ReportMetric(float64(swaps.Load())/float64(b.N), "swaps/op")
	}
	record := make([]byte, 300)
	b.Run("bare Put and Update", func(b *testing.B) {
		for b.Loop() {
			revision, err := kv.Put(b.Context(), "bare", record)
			if err == nil {
				_, err = kv.Update(b.Context(), "bare", record, revision)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare Get", func(b *testing.B) {
		for b.Loop() {
			if _, err := kv.Get(b.Context(), "bare"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		s, _ := store(b, connect(b, srv.URL()))
		for b.Loop() {
			if _, err := s.Get(b.Context(), natskv.Key("bare")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("uncontended", func(b *testing.B) {
		l := locker()
		measure(b, func() { turn(l, "uncontended") })
	})
	b.Run("two in turn", func(b *testing.B) {
		x, y := locker(), locker()
		measure(b, func() { turn(x, "turn"); turn(y, "turn") })
	})
	b.Run("hand-over", func(b *testing.B) { // to another process, which waits for the lock
		x, y, watcher := locker(), locker(), process(b, js)
		held := lock(b, x, "hand-over")
		var passed time.Duration
		measure(b, func() {
			next := make(chan *lockstile.Lock, 1)
			go func() { next <- lock(b, y, "hand-over") }()
			waits(b, watcher, "hand-over")
			began := time.Now()
			unlock(b, held)
			held = <-next
			passed += time.Since(began)
			x, y = y, x
		})
		b.ReportMetric(float64(passed)/float64(b.N), "ns/hand-over")
		unlock(b, held)
	})
}
