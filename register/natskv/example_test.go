package natskv_test

import (
	"context"
	"log"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register/natskv"
)

func Example() {
	if err := run(context.Background(), nats.DefaultURL); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	nc, err := nats.Connect(url,
		nats.ReconnectBufSize(-1),        // sends nothing later that nobody waits for any more
		nats.MaxReconnects(-1),           // never gives up
		nats.PingInterval(5*time.Second), // notices a dead connection before a lock of 30 seconds is lost
		nats.ReconnectWait(time.Second),
	)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "locks"}); err != nil {
		return err
	}
	locks, err := natskv.New(ctx, js, "locks", natskv.Options{})
	if err != nil {
		return err
	}
	defer locks.Close()

	return locker.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		log.Print("token ", lock.Token())
		return nil
	})
}

func TestExampleRunsAndIsThatOfThePage(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), testserver.NATS(t).URL()); err != nil {
		t.Error(err)
	}
	quoted.Check(t, "README.md", "example_test.go")
}
