package matrix

import (
	"context"
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// Writer is a Locker whose locks are transactions of the storage that they protect:
// holders write in the transaction. Such a write counts when it is committed, which
// Unlock does. What the holder of an ended transaction believes does no harm, so a
// holder counts only if its transaction was committed.
type Writer interface {
	Write(ctx context.Context, name string, token fencing.Token, value int) error
	// Sets reads the sets of a name in the transaction, the guarded one after a claim.
	Sets(ctx context.Context, name string, token fencing.Token) (Sets, error)
	// Add is a Write of an element that writes the sets as well, into which the
	// caller has put the element. A guard in the transaction checks the token
	// before the guarded one is written.
	Add(ctx context.Context, name string, token fencing.Token, element int, sets Sets) error
}

// Sets is one set in two storages: in one without a guard, and in one whose guard checks
// the token of every write.
type Sets struct{ Unguarded, Guarded []int }

// Entry is a row of the register of a name. A transaction adds a claim, with what it
// sees, when it gets the lock, and later a row for each write.
type Entry struct {
	ID     int64
	PID    int           // of the worker
	Token  fencing.Token // or the number of a shared lock
	Shared bool          // the transaction shares the lock, and reads
	Claim  bool
	Value  int     // of a write
	Saw    []int64 // the IDs that a claim saw
}

// transactional reports whether holders write in transactions.
func (p *play) transactional() bool { return p.System.Register != nil }

// readRegister takes what was committed into the history. It is called when all
// workers have ended. It is an error if a commit that was confirmed is not there,
// unless losing it is what the scenario is about: a register that is not read in full
// proves nothing.
func (p *play) readRegister() error {
	if !p.transactional() {
		return nil
	}
	workers := make(map[int]string)
	for _, w := range p.workers {
		workers[w.cmd.Process.Pid] = w.Name
	}
	for _, name := range p.names {
		entries, err := p.System.Register(name)
		if err != nil {
			return fmt.Errorf("reading the register: %w", err)
		}
		rows := make([]history.Entry, len(entries))
		for i, e := range entries {
			rows[i] = history.Entry(e)
		}
		p.History.Committed(rows, name, workers)
	}
	if p.scenario.Breaks&(locker.DurableServer|locker.DurableReplica) != 0 {
		return nil
	}
	return p.History.Missing()
}

// writeLateInTransaction delays a write in a transaction: the network is cut, and what
// was sent is delivered late.
func (l workerLock) writeLateInTransaction(value int) (deliver func()) {
	w := l.Worker
	var ch <-chan report
	w.heldBack(w.Name+"'s write", requests, func() <-chan report {
		w.Net.Cut()
		ch = l.tell(order{Verb: "write", Value: value, Bound: patience})
		return nil // its answer is for deliver
	})
	return func() {
		w.play.History.Mark("%s's write is delivered", w.Name)
		w.Net.Deliver()
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}
