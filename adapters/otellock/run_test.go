package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// workerRedis names a Redis for the test binary, which is then another program: a worker.
const workerRedis = "LOCKSTILE_TEST_WORKER"

func TestMain(m *testing.M) {
	addr := os.Getenv(workerRedis)
	if addr == "" {
		os.Exit(m.Run())
	}
	seen, err := newSeen(addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("metrics at", seen.addr)
	busy(context.Background(), seen.locks, "orders/1", 3, locker.WithTTL(3*time.Second))
	select {}
}

// seen is a Locker on Redis, the metrics of which are on a page for Prometheus.
type seen struct {
	locks locker.Locker
	addr  string // of the page
	close func() error
}

func newSeen(redisAddr string) (*seen, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	observer, err := otellock.Metrics(otellock.Options{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader)), Label: badLabel})
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		return nil, err
	}
	page, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	go func() { _ = server.Serve(page) }() // until it is closed
	return &seen{locker.Observe(locks, observer), page.Addr().String(), func() error {
		return errors.Join(locks.Close(), rdb.Close(), server.Close())
	}}, nil
}

// badLabel is the label of a user who has forgotten that a name may have no slash.
func badLabel(name string) string { return name[:strings.Index(name, "/")] }

// busy has goroutines lock a name again and again, for 20 ms each, until ctx ends. While the
// store is away they try again.
func busy(ctx context.Context, locks locker.Locker, name string, goroutines int, opts ...locker.Option) {
	for range goroutines {
		go func() {
			for ctx.Err() == nil {
				err := locker.Do(ctx, locks, name, func(context.Context, *locker.Lock) error {
					time.Sleep(20 * time.Millisecond)
					return nil
				}, opts...)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
	}
}

// run is what the dashboard shows: three processes and one Redis.
type run struct {
	t          *testing.T
	redis      *testserver.RedisServer
	prometheus *testserver.PrometheusServer
	worker     *process.Process // another one
	page       string           // of its metrics
	locks      locker.Locker
	pace       time.Duration // between what happens
	interval   string        // of rates
	began      time.Time
	marks      []mark
}

func newRun(t *testing.T) *run {
	t.Helper()
	r := &run{t: t, redis: testserver.Redis(t)}
	own, err := newSeen(r.redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.close() }) // the server may have been killed
	r.locks = own.locks
	pages := []string{own.addr}
	for range 2 {
		worker := process.Again(t, workerRedis+"="+r.redis.Addr())
		worker.Says("metrics at 127.0.0.1:")
		worker.Says("\n")
		r.page, _, _ = strings.Cut(strings.TrimPrefix(worker.Said(), "metrics at "), "\n")
		r.worker = worker
		pages = append(pages, r.page)
	}
	r.prometheus = testserver.Prometheus(t, pages...)
	return r
}

// play has happen what the panels show. It goes on when it has seen that a thing happened.
func (r *run) play() {
	ctx := r.t.Context()
	r.began = time.Now()
	r.do("report/0") // so that Prometheus sees all counters of this label at zero
	for len(r.query(`lockstile_lock_lost_total{lockstile_name="report"}`, "")) == 0 {
		time.Sleep(100 * time.Millisecond)
		if r.t.Context().Err() != nil || time.Since(r.began) > process.Patience {
			r.t.Fatal("Prometheus does not see this process")
		}
	}
	r.mark("3 processes and their goroutines want one lock")
	busy(ctx, r.locks, "orders/1", 3, locker.WithTTL(3*time.Second))
	r.mark("readers, and slots")
	busy(ctx, r.locks, "catalogue/1", 4, locker.WithShared())
	busy(ctx, r.locks, "licences/1", 5, locker.WithSlots(3))
	r.mark("TryLock, while another has the lock")
	r.taken()
	r.mark("locks are lost")
	r.lost()
	r.mark("a process is killed")
	r.killed()
	r.mark("the store does not answer")
	for !r.storeStops() {
	}
	r.mark("the store is away, and comes back without its data")
	r.storeDies()
	r.mark("a label panics")
	r.do("no slash, so the label panics")
	r.do("report/1")
	time.Sleep(r.pace)
}

// mark waits until the reader of the picture has seen the last one.
func (r *run) mark(text string) {
	time.Sleep(r.pace)
	r.marks = append(r.marks, mark{time.Since(r.began).Round(time.Second).Seconds(), text})
}

func (r *run) do(name string) {
	r.t.Helper()
	if err := r.lock(name).Unlock(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// lock waits for a lock, and for a store that has just come back.
func (r *run) lock(name string, opts ...locker.Option) *locker.Lock {
	r.t.Helper()
	for deadline := time.Now().Add(process.Patience); ; time.Sleep(100 * time.Millisecond) {
		lock, err := r.locks.Lock(r.t.Context(), name, opts...)
		if err == nil {
			return lock
		}
		if !errors.Is(err, locker.ErrUnavailable) || time.Now().After(deadline) {
			r.t.Fatal(err)
		}
	}
}

func (r *run) taken() {
	held := r.lock("report/2")
	for range 20 {
		if _, err := r.locks.TryLock(r.t.Context(), "report/2"); !errors.Is(err, locker.ErrTaken) {
			r.t.Errorf("TryLock of a lock that is taken: %v", err)
		}
		time.Sleep(r.pace / 40)
	}
	if err := held.Unlock(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

func (r *run) lost() {
	long := r.lock("report/3", locker.WithMaxHold(time.Second))
	<-long.Lost()
	broken := r.lock("report/4", locker.WithTTL(3*time.Second))
	if _, err := r.locks.(locker.Breaker).Break(r.t.Context(), "report/4"); err != nil {
		r.t.Error(err)
	}
	<-broken.Lost()
}

// killed kills a worker, whose lock this process gets, and whose metrics vanish.
func (r *run) killed() {
	r.worker.Signal(syscall.SIGKILL)
	r.worker.Ends(-1)
	r.do("orders/1")
	for held := r.now("lockstile_lock_held", r.page); len(held) > 0; held = r.now("lockstile_lock_held", r.page) {
		time.Sleep(100 * time.Millisecond)
		if r.t.Context().Err() != nil || time.Since(r.began) > 2*process.Patience {
			r.t.Fatalf("a process that was killed holds %v", held)
		}
	}
}

// storeStops stops the store until a renewal has failed, and reports whether the next one
// came before the lock was lost.
func (r *run) storeStops() bool {
	events := make(chan locker.Event, 100)
	lock := r.lock("report/5", locker.WithTTL(9*time.Second), locker.WithObserver(func(e locker.Event) { events <- e }))
	defer func() { _ = lock.Unlock(r.t.Context()) }() // it may be lost
	r.redis.Pause()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	if _, err := r.locks.TryLock(ctx, "report/6"); err == nil {
		r.t.Error("a store that does not answer has granted a lock")
	}
	failed := r.hears(events, locker.EventNotRenewed)
	r.redis.Resume()
	return failed && r.hears(events, locker.EventRenewedLate)
}

// hears waits for an event, and reports whether it came before the lock was lost.
func (r *run) hears(events <-chan locker.Event, what locker.EventType) bool {
	for {
		select {
		case e := <-events:
			if e.Type == what || e.Type == locker.EventLost {
				return e.Type == what
			}
		case <-time.After(process.Patience):
			r.t.Fatalf("no event tells that a lock is %v", what)
		}
	}
}

func (r *run) storeDies() {
	held := r.lock("report/7", locker.WithTTL(3*time.Second))
	r.redis.Kill()
	if _, err := r.locks.TryLock(r.t.Context(), "report/8"); !errors.Is(err, locker.ErrUnavailable) {
		r.t.Errorf("TryLock while the store is away: %v", err)
	}
	time.Sleep(r.pace / 2)
	r.redis.Start()
	<-held.Lost()
}
