package matrix

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
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
func (p *Play) transactional() bool { return p.System.Register != nil }

// readRegister takes what was committed into the history. It is called when all
// workers have ended. It is an error if a commit that was confirmed is not there,
// unless losing it is what the scenario is about: a register that is not read in full
// proves nothing.
func (p *Play) readRegister() error {
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
		p.History.committed(entries, name, workers)
	}
	if p.scenario.Breaks&(locker.DurableServer|locker.DurableReplica) != 0 {
		return nil
	}
	return p.History.missing()
}

// missing returns an error if a commit was confirmed and is not in the register.
func (h *History) missing() error {
	for _, s := range h.Spans {
		if s.Void && s.unlocked {
			return fmt.Errorf("the register has no claim of %s with token %d, whose commit was confirmed", s.Worker, s.Token)
		}
	}
	return nil
}

// committed adds the writes that were committed, and marks the holders that committed
// nothing.
func (h *History) committed(entries []Entry, name string, workers map[int]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		s := &h.Spans[i]
		if s.Name != name {
			continue
		}
		s.Void = !claimedBy(*s, h.Spans[i+1:], entries, workers)
		if s.Void {
			s.Until, s.End = h.end(*s), "nothing of it was committed; "+s.End
		}
	}
	for _, e := range entries {
		if e.Claim {
			continue
		}
		w := Write{Worker: workers[e.PID], Name: name, Token: e.Token, Shared: e.Shared, Value: e.Value, Stale: stale(e, entries), At: h.Ended}
		for _, s := range h.Spans {
			if s.wrote(w) && s.Until != 0 {
				w.At = s.Until // the commit was on its way
			}
		}
		h.Writes = append(h.Writes, w)
	}
}

// claimedBy reports whether a span has a claim in the register. After a failover a worker may be
// given a token again that it had had from the server that is lost: the claim is the later span's.
func claimedBy(s Span, later []Span, entries []Entry, workers map[int]string) bool {
	claims := 0
	for _, e := range entries {
		if e.Claim && workers[e.PID] == s.Worker && e.Token == s.Token {
			claims++
		}
	}
	for _, l := range later {
		if l.Name == s.Name && l.Worker == s.Worker && l.Token == s.Token {
			claims--
		}
	}
	return claims > 0
}

// stale reports whether a write was committed out of turn. The claims
// with a greater token must have seen the write, and no other claim. No clock is needed
// to tell. Readers may see one another's reads or not.
func stale(write Entry, entries []Entry) bool {
	return slices.ContainsFunc(entries, func(claim Entry) bool {
		return claim.Claim && (!claim.Shared || !write.Shared) && (claim.Token > write.Token) != slices.Contains(claim.Saw, write.ID)
	})
}

// writeLateInTransaction delays a write in a transaction: the network is cut, and what
// was sent is delivered late.
func (l WorkerLock) writeLateInTransaction(value int) (deliver func()) {
	w := l.Worker
	var ch <-chan report
	w.heldBack(w.Name+"'s write", requests, func() <-chan report {
		w.Net.Cut()
		ch = l.tell(order{Verb: "write", Value: value, Bound: patience})
		return nil // its answer is for deliver
	})
	return func() {
		w.play.History.mark("%s's write is delivered", w.Name)
		w.Net.Deliver()
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}

// counting returns the spans without the holders that committed nothing.
func (h *History) counting() []Span {
	return slices.DeleteFunc(slices.Clone(h.Spans), func(s Span) bool { return s.Void })
}
