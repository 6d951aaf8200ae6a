package etcdfence_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/etcdfence"
	"github.com/lockstile/locker/internal/testserver"
)

func newClient(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestSmallerTokenIsRefusedAndWritesNothing(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	// In text, 9 is greater than 10.
	if _, err := guard.Do(ctx, "r", 10, clientv3.OpPut("balance", "10")); err != nil {
		t.Fatal(err)
	}
	_, err := guard.Do(ctx, "r", 9, clientv3.OpPut("balance", "9"))
	var stale *fencing.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fencing.ErrStale) || *stale != (fencing.StaleError{Resource: "r", Token: 9, Seen: 10}) {
		t.Errorf("a stale write: %v", err)
	}
	if err := guard.Check(ctx, "r", 9); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale check: %v", err)
	}
	if got, err := client.Get(ctx, "balance"); err != nil || string(got.Kvs[0].Value) != "10" {
		t.Errorf("after the stale write: %v, %v", got, err)
	}
}

func TestEqualAndGreaterTokensAreAccepted(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	for _, token := range []fencing.Token{1, 1, 2, math.MaxInt64 + 1, math.MaxUint64, math.MaxUint64} {
		if err := guard.Check(ctx, "r", token); err != nil {
			t.Errorf("token %d: %v", token, err)
		}
	}
	if err := guard.Check(ctx, "r", math.MaxUint64-1); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("just under the greatest: %v", err)
	}
	if err := guard.Check(ctx, "another", 1); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

func TestZeroTokenIsRefusedAndWritesNothing(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	if _, err := guard.Do(ctx, "r", 0, clientv3.OpPut("balance", "0")); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a write: %v", err)
	}
	if err := guard.Check(ctx, "r", 0); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a check: %v", err)
	}
	if got, err := client.Get(ctx, "", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 0 {
		t.Errorf("after it: %v, %v", got, err)
	}
}

func TestResponsesAreThoseOfTheCallersOperations(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	resp, err := etcdfence.NewGuard(client).Do(patience(t), "r", 1, clientv3.OpPut("k", "v"), clientv3.OpGet("k"))
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Succeeded { // or who looks at it, as one does, takes the write for refused and does it again
		t.Error("a write that was done says that it did not succeed")
	}
	if len(resp.Responses) != 2 || string(resp.Responses[1].GetResponseRange().Kvs[0].Value) != "v" {
		t.Errorf("responses: %v", resp.Responses)
	}
}

// Whatever the order in which writers arrive, what stays is the write of the
// greatest token.
func TestLastWriteStandingIsThatOfTheGreatestToken(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	var wg sync.WaitGroup
	for token := fencing.Token(1); token <= 50; token++ {
		wg.Go(func() {
			_, err := guard.Do(ctx, "r", token, clientv3.OpPut("r", token.String()))
			if err != nil && !errors.Is(err, fencing.ErrStale) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := client.Get(ctx, "r"); err != nil || string(got.Kvs[0].Value) != "50" {
		t.Errorf("what stayed: %v, %v", got, err)
	}
}
