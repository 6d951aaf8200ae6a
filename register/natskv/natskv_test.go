package natskv_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/natskv"
	"github.com/lockstile/locker/register/registertest"
)

// What all these tests do.
var soon, lock, unlock, until, waits = locktest.Soon, locktest.Lock, locktest.Unlock, locktest.Until, locktest.Waits

const patience = locktest.Patience

// connect returns a client on a connection of its own, as another process has it.
func connect(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	opts = append([]nats.Option{nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, opts...) // the default one prints
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// bucket makes a bucket, called locks unless cfg names it.
func bucket(t testing.TB, js jetstream.JetStream, cfg jetstream.KeyValueConfig) jetstream.KeyValue {
	t.Helper()
	if cfg.Bucket == "" {
		cfg.Bucket = "locks"
	}
	kv, err := js.CreateKeyValue(soon(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// store returns the Store in the bucket called locks.
func store(t testing.TB, js jetstream.JetStream) (interface {
	register.Store
	register.Watcher
	register.Lister
}, register.Options) {
	t.Helper()
	s, like, err := natskv.Open(soon(t), js, "locks", natskv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s, like
}

// process returns a Locker on a connection of its own.
func process(t testing.TB, js jetstream.JetStream) *register.Locker {
	t.Helper()
	l, err := natskv.New(soon(t), js, "locks", natskv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestConformance(t *testing.T) {
	srv := testserver.NATS(t)
	js := connect(t, srv.URL())
	bucket(t, js, jetstream.KeyValueConfig{})
	_, like := store(t, js)
	registertest.Run(t, registertest.Harness{
		New: func(t testing.TB) register.Store {
			s, _ := store(t, connect(t, srv.URL()))
			return s
		},
		Options: like,
	})
}
