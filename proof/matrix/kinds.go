package matrix

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstile/locker"
)

// mixes are what workers ask for besides exclusive locks: A, C, … the first of a pair, B, D,
// … the second. So whoever comes next excludes the one before.
var mixes = []struct {
	name  string
	story string
	kinds [2]locker.Kind
}{
	{"reader first", "A and C share the lock, to read; B and D want it exclusively, to write.", [2]locker.Kind{locker.KindShared, locker.KindExclusive}},
	{"writer first", "A and C want the lock exclusively, to write; B and D share it, to read.", [2]locker.Kind{locker.KindExclusive, locker.KindShared}},
	{"slots", "The lock has two slots, and somebody else has one of them all the time.", [2]locker.Kind{locker.KindSlots, locker.KindSlots}},
}

// slots is how many a lock has where workers ask for slots.
const slots = 2

// mixed are the scenarios that are played with every kind of lock. The others break
// something that no kind of lock has of its own.
var mixed = []string{
	"pause before the write", "stale write comes first", "dead holder", "unlock by a former holder",
	"holder cut off", "lost reply to a lock", "late unlock",
	"server crashes", "server forgets", "failover",
	"dead waiter", "herd",
}

// withKinds returns the scenarios that are played with other kinds of locks.
func withKinds(all []Scenario) (more []Scenario) {
	for _, sc := range all {
		if !slices.Contains(mixed, sc.Name) {
			continue
		}
		for _, mix := range mixes {
			with := sc
			with.Name = fmt.Sprintf("%s (%s)", sc.Name, mix.name)
			with.Story = sc.Story + " " + mix.story
			with.Kinds, with.Like = mix.kinds, sc.Name
			more = append(more, with)
		}
	}
	return more
}

// missing reports whether a lock that declares g has not all kinds of the scenario.
func (sc Scenario) missing(g locker.Guarantees) bool {
	return !g.Shared && slices.Contains(sc.Kinds[:], locker.KindShared) || !g.Slots && slices.Contains(sc.Kinds[:], locker.KindSlots)
}

// kind is what a worker asks for.
func (p *play) kind(worker string) locker.Kind { return p.scenario.Kinds[(worker[0]-'A')%2] }

// play plays the scenario. If it has slots, all but one are somebody else's all the time, and
// what is done about that one must not touch them: they are the last, so that a store that
// has forgotten everybody gives away the first.
func (p *play) play() {
	if p.scenario.Kinds[0] != locker.KindSlots {
		p.scenario.play(p)
		return
	}
	other := p.Worker("Z")
	first, held := other.Lock(), other.locking(order{Verb: "lock", TTL: 10 * p.TTL}).Wait()
	first.Unlock()
	p.scenario.play(p)
	if p.scenario.Breaks == 0 {
		p.untouched(held)
	}
}

// untouched checks that a holder still has its slot: it can renew, and write, also when
// somebody else has been given each slot that is free. Else the history shows a loss without
// a reason, or a stale write.
func (p *play) untouched(l workerLock) {
	next := p.Worker("Y")
	for range slots {
		var no *refusal
		if _, err := next.Try(p.long()); !errors.As(err, &no) {
			p.must(err)
		}
	}
	l.mustRenew()
	l.Write(0)
}
