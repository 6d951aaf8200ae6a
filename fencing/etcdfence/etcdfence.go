// Package etcdfence guards data in etcd: a write is refused if its fencing token
// is smaller than the greatest that its resource has seen. The locks may be in
// etcd or anywhere else.
//
// A lock of package etcd needs no guard if the data is in the same cluster: with the
// compare that [etcd.Locker.Held] returns, a transaction goes through only while the
// lock is held.
//
// # What is promised
//
// Check and write are one transaction, so nothing comes between them. The
// greatest token of a resource is kept under "lockstile:f:" and its name, and is
// as durable as the data beside it.
//
// # What is not
//
// Only writes that go through the [Guard] are refused, and only the token of the
// resource that [Guard.Do] is given is compared, no matter which keys its operations
// write. Operations that write the guards' own keys are refused, by a range and in a
// nested transaction too; a client that writes there by itself can undo the guard.
//
// [etcd.Locker.Held]: https://pkg.go.dev/github.com/lockstile/locker/etcd#Locker.Held
package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
)

// prefix goes before a resource's name to make the key of its token.
const prefix = "lockstile:f:"

// Guard is a [fencing.Guard] on etcd. A resource is any name on which writers
// agree, such as the key they write.
type Guard struct{ kv clientv3.KV }

var _ fencing.Guard = (*Guard)(nil)

// NewGuard returns a Guard on kv, such as a client, which it never closes.
func NewGuard(kv clientv3.KV) *Guard { return &Guard{kv} }

// Check implements [fencing.Guard], in one round trip.
func (g *Guard) Check(ctx context.Context, resource string, token fencing.Token) error {
	if _, err := g.run(ctx, resource, token); err != nil {
		return fmt.Errorf("etcdfence: check %.100q: %w", resource, err)
	}
	return nil
}

// Do carries out ops in one transaction with the check, unless token is stale,
// and returns their responses in order. After a [fencing.ErrStale], and after a
// refusal of the server (too many operations, one of which is the guard's own; too
// many bytes), nothing has happened, and the token is not remembered. After any other
// error it may have happened; etcd's client does not send a write twice.
//
// Operations that write or delete keys which begin with "lockstile:f:" are refused.
func (g *Guard) Do(ctx context.Context, resource string, token fencing.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if slices.ContainsFunc(ops, reaches) { // it could change what was seen of another resource
		return nil, fmt.Errorf("etcdfence: write %.100q: keys that begin with %q are the guards' own", resource, prefix)
	}
	resp, err := g.run(ctx, resource, token, ops...)
	if err != nil {
		return nil, fmt.Errorf("etcdfence: write %.100q: %w", resource, err)
	}
	return resp, nil
}

// run compares tokens as text of one width. It asks whether the token is stale, and not
// whether it is good: any comparison with the value of a missing key is false.
func (g *Guard) run(ctx context.Context, resource string, token fencing.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if token == 0 {
		return nil, fencing.ErrZeroToken
	}
	key, text := prefix+resource, fmt.Sprintf("%020d", token)
	resp, err := g.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.Value(key), ">", text),
	).Then(
		clientv3.OpGet(key),
	).Else(
		append([]clientv3.Op{clientv3.OpPut(key, text)}, ops...)...,
	).Commit()
	if err != nil {
		return nil, err
	}
	if !resp.Succeeded {
		resp.Responses = resp.Responses[1:]
		resp.Succeeded = true // for the caller, who does not know that we ask for the contrary
		return resp, nil
	}
	found := resp.Responses[0].GetResponseRange()
	if found == nil || len(found.Kvs) == 0 {
		return nil, errors.New("the server gave an answer of an unknown form")
	}
	seen, err := fencing.Parse(string(found.Kvs[0].Value))
	if err != nil {
		return nil, err
	}
	return nil, &fencing.StaleError{Resource: resource, Token: token, Seen: seen}
}

// reaches reports whether an operation writes the guards' own keys. The end of a range
// is as the client sends it: empty for a single key, and a zero byte for all keys from
// the first one on.
func reaches(op clientv3.Op) bool {
	key, end := string(op.KeyBytes()), string(op.RangeBytes())
	switch {
	case op.IsTxn():
		_, then, otherwise := op.Txn()
		return slices.ContainsFunc(then, reaches) || slices.ContainsFunc(otherwise, reaches)
	case op.IsGet():
		return false
	case end == "":
		return strings.HasPrefix(key, prefix)
	}
	return key < clientv3.GetPrefixRangeEnd(prefix) && (end == "\x00" || end > prefix)
}
