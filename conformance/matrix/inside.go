package matrix

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Writer is a Locker whose locks are transactions of the storage that they
// protect: holders write inside. Such a write counts when it is committed, which
// Unlock does. A holder whose transaction has ended believes nothing that
// matters, so it counts as a holder only if its transaction was committed.
type Writer interface {
	Write(ctx context.Context, name string, token fencing.Token, value int) error
}

// Entry is what one transaction has left in the register of a name: when it got
// the lock its claim, with what it saw then, and later its writes.
type Entry struct {
	ID    int64
	PID   int // of the worker
	Token fencing.Token
	Claim bool
	Value int     // of a write
	Saw   []int64 // the IDs that a claim saw
}

// inside reports whether holders write inside a transaction.
func (p *Play) inside() bool { return p.System.Register != nil }

// settle takes what was committed into the history. It is called when all workers
// have ended. A commit that was confirmed and is not there makes all that is read
// worthless, unless losing it is what the scenario is about.
func (p *Play) settle(broken locker.Assumptions) error {
	if !p.inside() {
		return nil
	}
	entries, err := p.System.Register(p.name)
	if err != nil {
		return fmt.Errorf("reading the register: %w", err)
	}
	names := make(map[int]string)
	for _, w := range p.crew {
		names[w.cmd.Process.Pid] = w.Name
	}
	p.History.settle(entries, p.name, names)
	if broken&(locker.DurableServer|locker.DurableReplica) != 0 {
		return nil
	}
	return p.History.missing()
}

// missing returns an error if a commit was confirmed and is not in the register.
func (h *History) missing() error {
	for _, s := range h.Spans {
		if s.Void && s.freed {
			return fmt.Errorf("the register has no claim of %s with token %d, whose commit was confirmed", s.Worker, s.Token)
		}
	}
	return nil
}

// settle marks the holders of whom nothing was committed, and adds the writes.
func (h *History) settle(entries []Entry, name string, workers map[int]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		s := &h.Spans[i]
		s.Void = !slices.ContainsFunc(entries, func(e Entry) bool {
			return e.Claim && workers[e.PID] == s.Worker && e.Token == s.Token
		})
		if s.Void {
			s.Until, s.End = h.end(*s), "nothing of it was committed; "+s.End
		}
	}
	for _, e := range entries {
		if e.Claim {
			continue
		}
		w := Write{Worker: workers[e.PID], Name: name, Token: e.Token, Value: e.Value, Stale: stale(e, entries), At: h.Ended}
		for _, s := range h.Spans {
			if s.Worker == w.Worker && s.Token == w.Token && s.Until != 0 {
				w.At = s.Until // the commit was on its way
			}
		}
		h.Writes = append(h.Writes, w)
	}
}

// stale reports whether a write was committed out of turn: who claims with a
// greater token has seen it, and nobody else has. It takes no clock to tell.
func stale(write Entry, entries []Entry) bool {
	return slices.ContainsFunc(entries, func(claim Entry) bool {
		return claim.Claim && (claim.Token > write.Token) != slices.Contains(claim.Saw, write.ID)
	})
}

// writeInside is the way of a write that is part of a transaction: cut the
// network, and it is delivered late.
func (g Grant) writeInside(value int) (deliver func()) {
	w := g.Worker
	var ch <-chan report
	w.heldBack(w.Name+"'s write", requests, func() <-chan report {
		w.Net.Cut()
		ch = w.tell(order{Verb: "write", Name: w.play.name, Value: value, Bound: patience})
		return nil // its answer is for deliver
	})
	return func() {
		w.play.History.mark("%s's write is delivered", w.Name)
		w.Net.Deliver()
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}

// counts leaves out the holders of whom nothing was committed.
func (h *History) counts() []Span {
	return slices.DeleteFunc(slices.Clone(h.Spans), func(s Span) bool { return s.Void })
}
