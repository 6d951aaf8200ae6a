package etcd

import (
	"context"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Who has a slot has a key with its number. Who waits has another one, which is its place
// in the queue until it gives that up for a slot. The server finds the smallest slot that is
// free, by conditions within conditions, in the transaction that takes it. So nobody has to
// read who has which.

// depth is how many slots one request tries. Servers take 128 operations, those of all
// levels counted together.
const depth = 50

// every is a read of keys.
var every = clientv3.OpGet("\x00", clientv3.WithKeysOnly())

// pool is the prefix of all keys for one of so many slots.
func (a *attempt) pool() string { return a.folder + slotDir + strconv.Itoa(a.req.Slots) + "-" }

// taken are the keys of those who have slots, and waiting of those who wait for one.
func (a *attempt) taken() span   { return span{a.pool(), a.pool() + "w"} }
func (a *attempt) waiting() span { return span{from: a.pool() + "w-"} }

func (a *attempt) slotKey(slot int) string { return a.pool() + strconv.Itoa(slot) + "-" + a.id }

// watched is the end of the range that the attempt watches, if what is ahead of it is no
// single key.
func (a *attempt) watched(ahead string) (end string) {
	if a.req.Kind == locker.KindSlots && ahead == a.pool() {
		return a.taken().end
	}
	return ""
}

// take takes the smallest slot that is free, if nobody waits before the attempt. Otherwise
// it returns what to wait for, and, unless once is set, the attempt has a place in the queue.
//
// Of the requests of an attempt that has a place, only one can be granted, for it gives the
// place up. Without a place several could, and which slot an earlier one has taken, or will
// take, is not known: it is made void before another is sent.
func (s *store) take(ctx context.Context, a *attempt, once bool) (ahead string, err error) {
	if a.unsure && !a.there {
		if _, err := s.remove(ctx, a); err != nil {
			return "", err
		}
		s.rename(a)
	}
	for from := 0; from >= 0; { // again only if others have taken what one request tries, and not all
		resp, err := s.claim(ctx, a, from, once)
		switch {
		case err != nil:
			return "", s.failed(ctx, a, err)
		case !resp.Succeeded:
			return "", a.refusal(resp)
		}
		if inner := inside(resp); inner.Succeeded {
			slot, last := tried(inside(inner), from)
			if slot >= 0 {
				a.granted(slot, resp.Header.Revision)
				return "", nil
			}
			ahead, from = a.pool(), a.free(last)
		} else {
			ahead, from = string(first(inner, 0).Key), -1
		}
		if !once && !a.there {
			a.place, a.there = resp.Header.Revision, true
		}
	}
	return ahead, nil
}

// claim sends the request that tries the slots from one on. It is void if the attempt was
// withdrawn, or has given up its place; and it grants nothing beside keys that are not for one
// of so many slots. Such a key may be that of a Mutex that waits: it looks at no key that
// is put after its own, as a slot's would be.
func (s *store) claim(ctx context.Context, a *attempt, from int, once bool) (*clientv3.TxnResponse, error) {
	lower, upper := a.strangers()
	mine, inFront, ahead := putAt(s.markOf(a), 0), a.waiting().none(), a.waiting().find(newest)
	otherwise := []clientv3.Op{lower.find(oldest), upper.find(oldest)}
	var queue []clientv3.Op
	switch {
	case a.there:
		mine, inFront = putAt(a.key, a.place), a.waiting().created(">", a.place-1)
		ahead = a.waiting().find(before(a.place))
		otherwise = append(otherwise, a.taken().find(every))
	case !once:
		queue = []clientv3.Op{clientv3.OpPut(a.key, a.req.Holder, clientv3.WithLease(a.session.id))}
	}
	tries := clientv3.OpTxn([]clientv3.Cmp{inFront}, a.tries(from, queue), append([]clientv3.Op{ahead}, queue...))
	try := onlyTry
	if a.there { // it may be asked again
		try = firstTry
	}
	return insist(ctx, try, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return a.commit(s.client.Txn(ctx).If(mine, lower.none(), upper.none()).Then(tries).Else(otherwise...))
	})
}

// tries are what takes the first slot that is free, from one on. If none of them is, queue is
// done; and if there are more than those, it reads who has which.
func (a *attempt) tries(from int, queue []clientv3.Op) []clientv3.Op {
	n, ops := a.req.Slots, queue
	if n > depth {
		ops = append([]clientv3.Op{a.taken().find(every)}, queue...)
	}
	for k := min(n, from+depth) - 1; k >= from; k-- {
		key := a.slotKey(k)
		then := []clientv3.Op{clientv3.OpPut(key, a.req.Holder, clientv3.WithLease(a.session.id))}
		if a.there {
			then = append(then, clientv3.OpDelete(a.key))
		}
		free := span{from: key[:len(key)-len(a.id)]}.none()
		ops = []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{free}, then, ops)}
	}
	return ops
}

// tried returns which slot, from one on, was taken, or -1 and the answer of the last try.
func tried(answer *clientv3.TxnResponse, from int) (slot int, last *clientv3.TxnResponse) {
	for slot = from; !answer.Succeeded; slot++ {
		next := inside(answer)
		if next == nil {
			return -1, answer
		}
		answer = next
	}
	return slot, answer
}

// inside is the answer of the transaction within one, or nil if there is none.
func inside(resp *clientv3.TxnResponse) *clientv3.TxnResponse {
	if len(resp.Responses) == 0 {
		return nil
	}
	return (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
}

// free returns the smallest slot that is free, if the last try has read who has which, or -1.
func (a *attempt) free(last *clientv3.TxnResponse) int {
	if len(last.Responses) == 0 || last.Responses[0].GetResponseRange() == nil {
		return -1
	}
	taken := make([]bool, a.req.Slots)
	for _, kv := range last.Responses[0].GetResponseRange().Kvs {
		if slot := roleOf(kv.Key).slot; slot >= 0 && slot < len(taken) {
			taken[slot] = true
		}
	}
	return slices.Index(taken, false)
}

// refusal is why a claim has done nothing; or the attempt has a slot, by an earlier one, and
// then it is nil.
func (a *attempt) refusal(resp *clientv3.TxnResponse) error {
	if a.there {
		for _, kv := range resp.Responses[2].GetResponseRange().Kvs {
			if strings.HasSuffix(string(kv.Key), "-"+a.id) {
				a.granted(roleOf(kv.Key).slot, kv.CreateRevision)
				return nil
			}
		}
	}
	for i := range 2 {
		if kv := first(resp, i); kv != nil {
			r := roleOf(kv.Key)
			return driver.Mismatch(a.req, r.kind, r.slots)
		}
	}
	if a.there {
		a.there = false
		return errDeleted
	}
	return errWithdrawn
}

// strangers are the keys of the name that are not for one of so many slots.
func (a *attempt) strangers() (lower, upper span) {
	return span{a.folder, a.pool()}, span{string(span{from: a.pool()}.until()), string(span{from: a.folder}.until())}
}

// granted notes that the attempt has a slot. What may be under way for it is void.
func (a *attempt) granted(slot int, at int64) {
	a.key, a.place, a.slot = a.slotKey(slot), at, slot
	a.there, a.unsure = true, false
}
