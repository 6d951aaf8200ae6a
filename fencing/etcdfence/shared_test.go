package etcdfence_test

import (
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/etcdfence"
	"github.com/lockstile/locker/internal/guardtest"
	"github.com/lockstile/locker/internal/testserver"
)

func TestGuardKeepsTheContractOfGuards(t *testing.T) {
	guardtest.Run(t, etcdfence.NewGuard(newClient(t, testserver.Etcd(t, 1).Endpoints()...)))
}

func TestReadIsOneStepWithItsCheck(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	if _, err := guard.Do(ctx, "r", 4, clientv3.OpPut("balance", "4"), clientv3.OpPut("owner", "b")); err != nil {
		t.Fatal(err)
	}
	resp, err := guard.Read(ctx, "r", 5, clientv3.OpGet("balance"), clientv3.OpGet("owner"))
	if err != nil || !resp.Succeeded || resp.Header.Revision == 0 || len(resp.Responses) != 2 || string(resp.Responses[1].GetResponseRange().Kvs[0].Value) != "b" {
		t.Errorf("a read: %+v, %v", resp, err)
	}
	if _, err := guard.Do(ctx, "r", 4, clientv3.OpPut("balance", "x")); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier holder's write: %v", err)
	}
	if resp, err := guard.Do(ctx, "r", 6, clientv3.OpPut("balance", "6")); err != nil || resp.Header.Revision == 0 {
		t.Errorf("a later holder's write: %+v, %v", resp, err)
	}
	_, err = guard.Read(ctx, "r", 5, clientv3.OpGet("balance"))
	var stale *fencing.StaleError
	if !errors.As(err, &stale) || *stale != (fencing.StaleError{Resource: "r", Token: 5, Seen: 6, Reader: true}) {
		t.Errorf("a read after it: %v", err)
	}
}

// Goal: what a reader sends writes nothing, and leaves no number where it is refused.
func TestReadWithAnOperationThatWritesIsRefused(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	for name, op := range map[string]clientv3.Op{
		"put":                  clientv3.OpPut("k", "v"),
		"delete":               clientv3.OpDelete("k"),
		"put in a transaction": clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("k", "v")}, nil),
		"nothing":              {},
	} {
		if _, err := guard.Read(ctx, "r", 5, clientv3.OpGet("k"), op); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := slices.Repeat([]clientv3.Op{clientv3.OpGet("k")}, 128) // the guard's own is one more
	if _, err := guard.Read(ctx, "r", 5, many...); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("more than a transaction may have: %v", err)
	}
	if got, err := client.Get(ctx, "", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 0 {
		t.Errorf("after it: %v, %v", got, err)
	}
}

// Goal: a resource that was guarded before there were readers still is.
func TestTokenFromBeforeThereWereReadersCounts(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	if _, err := client.Put(ctx, "lockstile:f:r", "00000000000000000034"); err != nil {
		t.Fatal(err)
	}
	if err := guard.CheckShared(ctx, "r", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale reader: %v", err)
	}
	if err := guard.Check(ctx, "r", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale writer: %v", err)
	}
	if err := guard.CheckShared(ctx, "r", 35); err != nil {
		t.Errorf("a reader: %v", err)
	}
}
