package matrix

import (
	"context"
	"time"
)

// add reads the sets, works, and writes them back with one more element. Like write, it looks
// whether the lock is held, and then anything can happen. Without an element it only reads.
func (w *worker) add(ctx context.Context, o order, r *report) {
	r.Kind, r.Value = kindWrote, o.Value
	l := w.lockOf(o, r)
	if l == nil {
		return
	}
	transaction, inside := w.peer.(Writer)
	sets, err := *o.Sets, l.Err()
	if err == nil && inside {
		sets, err = transaction.Sets(ctx, o.Name, l.Token())
	}
	if err != nil || o.Value == 0 {
		r.Sets = &sets
		r.fail(err)
		return
	}
	if o.Stop {
		stopMyself()
	}
	time.Sleep(o.Work)
	if o.Careful {
		if err := l.Err(); err != nil {
			r.fail(err)
			return
		}
	}
	sets = sets.with(o.Value)
	if inside {
		r.fail(transaction.Add(ctx, o.Name, l.Token(), o.Value, sets))
		return
	}
	_ = w.out.send(report{Kind: kindWrite, Name: r.Name, Token: r.Token, Value: o.Value, Sets: &sets})
}
