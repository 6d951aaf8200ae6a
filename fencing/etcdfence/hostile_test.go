package etcdfence_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/etcdfence"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: what the guard remembers of one resource is not written over under another.
//
// Interleaving: 34 has written "victim". Somebody who chooses keys writes or deletes the
// one in which that is remembered; 33 comes late.
func TestGuardsOwnKeysAreNotWritten(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	if _, err := guard.Do(ctx, "victim", 34, clientv3.OpPut("balance", "34")); err != nil {
		t.Fatal(err)
	}
	if err := guard.CheckShared(ctx, "victim", 35); err != nil {
		t.Fatal(err)
	}
	put := clientv3.OpPut("lockstile:f:victim", "0")
	for name, op := range map[string]clientv3.Op{
		"put":                    put,
		"put of a reader's":      clientv3.OpPut("lockstile:fs:victim", "0"),
		"delete of readers'":     clientv3.OpDelete("lockstile:fs:", clientv3.WithPrefix()),
		"delete":                 clientv3.OpDelete("lockstile:f:victim"),
		"delete by prefix":       clientv3.OpDelete("lockstile:", clientv3.WithPrefix()),
		"delete by range":        clientv3.OpDelete("a", clientv3.WithRange("lockstile:f:w")),
		"delete from a key on":   clientv3.OpDelete("lockstile:f:v", clientv3.WithFromKey()),
		"delete everything":      clientv3.OpDelete("", clientv3.WithPrefix()),
		"put in a transaction":   clientv3.OpTxn(nil, []clientv3.Op{put}, nil),
		"delete in its own else": clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete("lockstile:f:victim")})}),
	} {
		if _, err := guard.Do(ctx, "other "+name, 1, clientv3.OpPut("done", "1"), op); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := guard.Do(ctx, "victim", 34, clientv3.OpPut("balance", "33")); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale write: %v", err)
	}
	if err := guard.CheckShared(ctx, "victim", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale read: %v", err)
	}
	got, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	if !slices.Equal(keys, []string{"balance", "lockstile:f:victim", "lockstile:fs:victim"}) {
		t.Errorf("after it there is %q", keys)
	}
}

// Goal: the look at the guard's keys stands in the way of nothing else.
func TestKeysBesideTheGuardsOwnAreWritten(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	for i, op := range []clientv3.Op{
		clientv3.OpPut("lockstile:e", "v"),
		clientv3.OpPut("lockstile:g", "v"),
		clientv3.OpDelete("lockstile:e", clientv3.WithPrefix()),
		clientv3.OpDelete("lockstile:a", clientv3.WithRange("lockstile:f")),
		clientv3.OpDelete("lockstile:g", clientv3.WithFromKey()),
		clientv3.OpGet("lockstile:f:r"),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("", clientv3.WithPrefix())}, []clientv3.Op{clientv3.OpPut("k", "v")}),
	} {
		if _, err := guard.Do(ctx, "r", 1, op); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// Goal: a write that the server refuses leaves no token, as the documentation says.
// Method: more operations than a transaction may have, and more bytes.
func TestWriteThatTheServerRefusesLeavesNoToken(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	guard := etcdfence.NewGuard(client)
	ctx := patience(t)
	many := slices.Repeat([]clientv3.Op{clientv3.OpGet("k")}, 128) // the guard's own is one more
	large := []clientv3.Op{clientv3.OpPut("k", strings.Repeat("x", 4<<20))}
	twice := []clientv3.Op{clientv3.OpPut("k", "1"), clientv3.OpPut("k", "2")}
	for name, ops := range map[string][]clientv3.Op{"many": many, "large": large, "twice": twice} {
		if _, err := guard.Do(ctx, "r", 9, ops...); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := guard.Check(ctx, "r", 1); err != nil {
		t.Errorf("a smaller token afterwards: %v", err)
	}
}
