// Package etcdfence guards data in etcd: a write is refused if its fencing token
// is smaller than the greatest that its resource has seen. The locks may be in
// etcd or anywhere else.
//
//	guard := etcdfence.NewGuard(client)
//	_, err := guard.Do(ctx, "account/7", lock.Token(), clientv3.OpPut("account/7", "1250"))
//
// A lock of package etcd needs no guard if the data is in the same cluster: with the
// compare that [etcd.Locker.Held] returns, a transaction goes through only while the
// lock is held.
//
// # What is promised
//
// Check and write are one transaction, so nothing comes between them. The
// greatest token of a resource is kept under "lockstile:f:" and its name, the greatest
// number of its readers under "lockstile:fs:" and its name. Both are as durable as the
// data beside them.
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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
)

const (
	// reserved begins the keys of the guards.
	reserved = "lockstile:f"

	// written and read go before a resource's name to make the keys of the greatest token
	// that wrote and the greatest number that read.
	written = reserved + ":"
	read    = reserved + "s:"
)

// Guard is a [fencing.SharedGuard] on etcd. A resource is any name on which writers
// agree, such as the key they write.
type Guard struct{ kv clientv3.KV }

var _ fencing.SharedGuard = (*Guard)(nil)

// NewGuard returns a Guard on kv, such as a client, which it never closes.
func NewGuard(kv clientv3.KV) *Guard { return &Guard{kv} }

// Check implements [fencing.Guard], in one round trip.
func (g *Guard) Check(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.write(ctx, "check", resource, token)
	return err
}

// CheckShared implements [fencing.SharedGuard], in one round trip.
func (g *Guard) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	_, err := g.read(ctx, "check", resource, token)
	return err
}

// Do carries out ops in one transaction with the check, unless token is stale,
// and returns their responses in order. After a [fencing.ErrStale], and after a
// refusal of the server (too many operations, one of which is the guard's own; too
// many bytes), nothing has happened, and the token is not remembered. After any other
// error it may have happened; etcd's client does not send a write twice.
//
// Operations that write or delete keys which begin with "lockstile:f" are refused.
func (g *Guard) Do(ctx context.Context, resource string, token fencing.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if slices.ContainsFunc(ops, reaches) { // it could change what was seen of another resource
		return nil, fmt.Errorf("etcdfence: write %.100q: keys that begin with %q are the guards' own", resource, reserved)
	}
	return g.write(ctx, "write", resource, token, ops...)
}

// Read carries out ops in one transaction with the check of a reader's number, as Do does
// with a writer's token. They must be gets: with any other operation nothing is sent.
func (g *Guard) Read(ctx context.Context, resource string, token fencing.SharedToken, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if slices.ContainsFunc(ops, func(op clientv3.Op) bool { return !op.IsGet() }) {
		return nil, fmt.Errorf("etcdfence: read %.100q: an operation is not a get, and a shared lock opens no write", resource)
	}
	return g.read(ctx, "read", resource, token, ops...)
}

func (g *Guard) write(ctx context.Context, verb, resource string, token fencing.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	mine := fencing.StaleError{Resource: resource, Token: token}
	accept := append([]clientv3.Op{put(written, mine)}, ops...)
	resp, err := g.run(ctx, mine, clientv3.OpTxn(over(read, mine), []clientv3.Op{clientv3.OpGet(read + resource)}, accept))
	if err == nil {
		inner := resp.Responses[0].GetResponseTxn()
		if inner.Succeeded {
			err = stale(mine, inner.Responses)
		} else {
			resp.Responses = inner.Responses[1:]
		}
	}
	if err != nil {
		return nil, fmt.Errorf("etcdfence: %s %.100q: %w", verb, resource, err)
	}
	return resp, nil
}

func (g *Guard) read(ctx context.Context, verb, resource string, token fencing.SharedToken, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	mine := fencing.StaleError{Resource: resource, Token: fencing.Token(token), Reader: true}
	raise := clientv3.OpTxn(over(read, mine), nil, []clientv3.Op{put(read, mine)})
	resp, err := g.run(ctx, mine, append([]clientv3.Op{raise}, ops...)...)
	if err != nil {
		return nil, fmt.Errorf("etcdfence: %s %.100q: %w", verb, resource, err)
	}
	resp.Responses = resp.Responses[1:]
	return resp, nil
}

// run carries out ops unless a greater token than mine has written. It asks whether mine is
// stale, and not whether it is good: any comparison with the value of a missing key is false.
func (g *Guard) run(ctx context.Context, mine fencing.StaleError, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if mine.Token == 0 {
		return nil, fencing.ErrZeroToken
	}
	resp, err := g.kv.Txn(ctx).If(over(written, mine)...).Then(clientv3.OpGet(written + mine.Resource)).Else(ops...).Commit()
	switch {
	case err != nil:
		return nil, err
	case resp.Succeeded:
		return nil, stale(mine, resp.Responses)
	}
	resp.Succeeded = true // for the caller, who does not know that we ask for the contrary
	return resp, nil
}

// over is the condition that a mark of the resource is greater than mine.
func over(mark string, mine fencing.StaleError) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(mark+mine.Resource), ">", digits(mine.Token))}
}

func put(mark string, mine fencing.StaleError) clientv3.Op {
	return clientv3.OpPut(mark+mine.Resource, digits(mine.Token))
}

// digits makes tokens text of one width, which etcd compares.
func digits(token fencing.Token) string { return fmt.Sprintf("%020d", token) }

// stale makes the error of what a transaction has found in place of doing its work.
func stale(mine fencing.StaleError, found []*etcdserverpb.ResponseOp) error {
	kvs := found[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return errors.New("the server gave an answer of an unknown form")
	}
	seen, err := fencing.ParseToken(string(kvs[0].Value))
	if err != nil {
		return err
	}
	mine.Seen = seen
	return &mine
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
		return strings.HasPrefix(key, reserved)
	}
	return key < clientv3.GetPrefixRangeEnd(reserved) && (end == "\x00" || end > reserved)
}
