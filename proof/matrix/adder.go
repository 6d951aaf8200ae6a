package matrix

import (
	"context"
	"time"

	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// add reads the sets, works, and writes them back with one more element. Like write, it looks
// whether the lock is held, and then anything can happen. Without an element it only reads.
func (w *workerProcess) add(ctx context.Context, o order, r *report) {
	r.Kind, r.Value = kindWrote, o.Value
	l := w.lockOf(o, r)
	if l == nil {
		return
	}
	transaction, inside := w.peer.(Writer)
	sets, err := *o.Sets, l.Err()
	if err == nil && inside {
		var read Sets
		read, err = transaction.Sets(ctx, o.Name, l.Token())
		sets = history.Sets(read)
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
	sets = sets.With(o.Value)
	if inside {
		r.fail(transaction.Add(ctx, o.Name, l.Token(), o.Value, Sets(sets)))
		return
	}
	_ = w.out.send(report{Kind: kindWrite, Name: r.Name, Token: r.Token, Value: o.Value, Sets: &sets})
}
