package redisnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/mailbox"
)

// View is what a server knows of a lock.
type View struct {
	locker.Info
	Value string // an exclusive holder's, also where the lock is kept taken for that one
	Holds []Hold // of all holders: of one that is exclusive, or of others in the order of their numbers
}

// Hold is what one holder has.
type Hold struct {
	locker.Holder
	Kind  locker.Kind
	Value string

	stored string // what the server has for it
	noLock bool   // that has no expiry, and is no lock of ours
}

// Kept reports whether nobody has the lock any more, and it is kept taken.
func (h Hold) Kept() bool { return h.Value != h.stored }

// Look reads what the server knows of a lock.
func (n *Node) Look(ctx context.Context, keys Keys) (View, error) {
	var pages []any
	for next := "0"; ; {
		reply, _, err := n.send(ctx, keys.look(next))
		if err != nil {
			return View{}, err
		}
		pages = append(pages, reply)
		if next = nextPage(reply); next == "0" {
			return view(keys, pages...)
		}
	}
}

// look asks for one page. The first is "0", and so is what follows the last.
func (k *Keys) look(page string) request { return k.request(inspect, k.markOf(""), page) }

// nextPage is what to ask for after a reply.
func nextPage(reply any) string {
	if fields, _ := reply.([]any); len(fields) == 7 {
		if next, ok := fields[6].(string); ok {
			return next
		}
	}
	return "0"
}

// markOf is the key of a value's mark.
func (k *Keys) markOf(value string) string { return k.text(ownKey)[:k.mark] + value }

// view reads the replies to the pages of one look. Of the lock itself the last one is true. A
// holder that has renewed meanwhile may be on two pages.
func view(keys Keys, pages ...any) (View, error) {
	var fields []any
	entries := make(map[string]entry)
	for _, reply := range pages {
		if fields, _ = reply.([]any); len(fields) != 7 {
			return View{}, unknownForm(reply)
		}
		readEntries(entries, fields[4], fields[5])
	}
	stored, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	last, _ := fields[2].(string)
	waiters, _ := fields[3].(int64)
	v := View{Info: locker.Info{Name: keys.Lock, Waiters: int(max(0, waiters))}}
	token, of, holder := lastGrant(last)
	switch {
	case left == missing || isReservation(stored) || isNobodys(stored):
		v.Token = token
		v.setEntries(entries)
		return v, nil
	case of == holderOf(stored):
		v.Token, v.Holder = token, holder
	}
	v.Held, v.Value = true, holderOf(stored)
	noLock := left == endless && of != v.Value
	if noLock {
		v.Holder = "unknown: the key has no expiry, and is no lock of ours"
	}
	v.TimeLeft = mailbox.Left(left)
	v.Holds = []Hold{{locker.Holder{Text: v.Holder, Number: locker.Number(v.Token), Slot: -1, TimeLeft: v.TimeLeft}, locker.KindExclusive, v.Value, stored, noLock}}
	v.Kept = v.Holds[0].Kept()
	return v, nil
}

// entry is what a server knows of one who shares a lock.
type entry struct {
	left int64 // ms
	fact string
}

// readEntries adds those of a page: values with the time that each has left, and their facts in
// the same order.
func readEntries(all map[string]entry, values, facts any) {
	lefts, _ := values.([]any)
	texts, _ := facts.([]any)
	for i := 0; i+1 < len(lefts) && i/2 < len(texts); i += 2 {
		value, _ := lefts[i].(string)
		left, _ := lefts[i+1].(string)
		var e entry
		e.left, _ = strconv.ParseInt(left, 10, 64)
		e.fact, _ = texts[i/2].(string)
		all[value] = e
	}
}

// setEntries fills in those who hold the lock together. Those whose lease has ended hold
// nothing. A reservation, or a value of somebody else's, is neither a reader's nor a slot's.
func (v *View) setEntries(all map[string]entry) {
	for value, e := range all {
		kind, slots := kindOf(value)
		if e.left < 0 || kind == locker.KindExclusive {
			continue
		}
		h := Hold{Kind: kind, Value: value, stored: value}
		v.Slots = slots
		h.TimeLeft = mailbox.Left(e.left)
		words := strings.SplitN(e.fact, " ", 3)
		if len(words) == 3 {
			number, _ := strconv.ParseUint(words[0], 10, 64)
			h.Number = locker.Number(number)
			h.Slot, _ = strconv.Atoi(words[1])
			h.Slot = max(-1, h.Slot)
			h.Text = words[2]
		}
		v.Holds = append(v.Holds, h)
		v.Held, v.Kind, v.TimeLeft = true, h.Kind, max(v.TimeLeft, h.TimeLeft)
	}
	slices.SortFunc(v.Holds, func(a, b Hold) int { return cmp.Compare(a.Number, b.Number) })
	for _, h := range v.Holds {
		v.Holders = append(v.Holders, h.Holder)
	}
}

// What PTTL answers for a key that has no expiry, and for one that is not there.
const (
	endless = -1
	missing = -2
)

// isReservation tells a reservation from what a client of another library may
// have put there: random bytes begin with a question mark now and then.
func isReservation(stored string) bool {
	of, ok := strings.CutPrefix(stored, "?")
	return ok && len(of) == valueSize
}

// holderOf is the value of the holder that a lock is kept taken for, or else what its key
// has.
func holderOf(stored string) string {
	if of, ok := strings.CutPrefix(stored, "-"); ok && len(of) == valueSize {
		return of
	}
	return stored
}

// isNobodys tells what a lock's key has while others hold it together.
func isNobodys(stored string) bool {
	kind, _ := kindOf(stored)
	return kind != locker.KindExclusive && strings.HasSuffix(stored, "#lockstile")
}

// lastGrant reads what a script's grant wrote. The token is the first of the range at
// whose end the counter stands: on a node of a quorum, the majority's.
func lastGrant(s string) (token fencing.Token, value, holder string) {
	number, rest, _ := strings.Cut(s, " ")
	value, rest, _ = strings.Cut(rest, " ")
	_, holder, _ = strings.Cut(rest, " ")
	number, _, _ = strings.Cut(number, ":")
	final, _ := fencing.ParseToken(number)
	if value == "" {
		return final, "", "" // not a range: a reader's, or a slot's
	}
	if final < Tokens {
		return 0, value, holder // it was never written: unknown
	}
	return final - Tokens + 1, value, holder
}

// Break takes the lock from those holders of whom which is true, and reports whether there
// were any. After an error it may have been taken, but for [ErrNoLock]: a key that has no expiry and is no lock of
// ours is left alone, for it may be data.
func (n *Node) Break(ctx context.Context, keys Keys, which func(Hold) bool) (broken bool, err error) {
	for range 10 { // it may change hands while we look
		v, err := n.Look(ctx, keys)
		if err != nil {
			return false, err
		}
		those := slices.DeleteFunc(v.Holds, func(h Hold) bool { return !which(h) })
		for _, h := range those {
			if h.noLock {
				return false, ErrNoLock
			}
			one, err := n.force(ctx, keys, h)
			if err != nil {
				return broken, err
			}
			broken = broken || one
		}
		if broken || len(those) == 0 {
			return broken, nil
		}
	}
	return false, errors.New("the lock changes hands so fast that none of its holders could be broken")
}

// Numbered returns which holder has a number: every one if it is 0.
func Numbered(number locker.Number) func(Hold) bool {
	return func(h Hold) bool { return number == 0 || h.Number == number }
}

// force takes the lock from a holder that still has it, and reports whether it has. A value
// that is not ours is not marked: nobody asks for its mark, and it may be long or a secret.
func (n *Node) force(ctx context.Context, keys Keys, h Hold) (bool, error) {
	ours, remember := h.Value, max(h.TimeLeft, lateTime)
	if h.Kind == locker.KindExclusive && len(ours) != valueSize {
		ours, remember = "", 0
	}
	reply, repeated, err := n.sendOn(ctx, keys.request(force, keys.markOf(ours), h.stored, claim, n.counts, remember.Milliseconds()))
	if err == nil && reply == int64(0) && repeated && ours == "" {
		err = classify(errMaybeForced)
	}
	return reply == int64(1), err
}

// errMaybeForced is the end of a force whose first answer was lost. A second look
// would be at the next holder.
var errMaybeForced = errors.New("the answer was lost: the lock may have been broken, look who has it")
