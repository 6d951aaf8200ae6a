package matrix

import (
	"errors"

	"github.com/lockstile/locker"
)

var holderScenarios = []Scenario{
	{
		Name: "pause before the write", Breaks: locker.PromptHolder, play: pauseBeforeTheWrite,
		Story: "A holder looks at its lock, is paused for longer than its lease, and then writes.",
	},
	{
		Name: "stale write comes first", Breaks: locker.PromptHolder, play: staleWriteComesFirst,
		Story: "The same, but the new holder has not written anything yet when the stale write arrives: only its claim protects the storage.",
	},
	{
		Name: "delayed write", Breaks: locker.PromptHolder, play: delayedWrite,
		Story: "A holder writes in time, and the network delivers the write so late that somebody else holds the lock.",
	},
	{
		Name: "handed over", Breaks: locker.PromptHolder, lacks: needsHandles, play: handedOver,
		Story: "A holder looks at its lock, detaches it, and is stopped before it writes. Another process resumes the lock, and writes. Then the first one goes on, and makes its write.",
	},
	{
		Name: "suspended holder", play: suspendedHolder,
		Story: "A holder's process is stopped for longer than its lease; when it wakes it looks at its lock before it writes.",
	},
	{
		Name: "dead holder", play: deadHolder,
		Story: "A holder's process is killed.",
	},
	{
		Name: "unlock by a former holder", play: unlockByAFormerHolder,
		Story: "A holder whose lock has ended unlocks while somebody else holds it.",
	},
}

func pauseBeforeTheWrite(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	first := a.Lock()
	wake := first.LookThenSleepThenWrite(1)
	p.takeOver(b, func(second workerLock) { second.Write(2) }, wake, first)
}

func staleWriteComesFirst(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	first := a.Lock()
	wake := first.LookThenSleepThenWrite(1)
	p.takeOver(b, func(workerLock) {}, wake, first)
}

func delayedWrite(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	first := a.Lock()
	deliver := first.WriteDelayed(1)
	p.suspend(first, b, deliver)
}

func handedOver(p *play) {
	p.TTL *= 3 // what was detached lasts until it is resumed, on a busy machine
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	first := a.Lock()
	first.Write(1)
	left := first.detach()
	switch {
	case left.NoKind:
		return
	case left.Handle == "":
		p.notPlayed("A's lock was not detached: %s", left.Err)
	}
	wake := first.SleepThenWrite(left, 2)
	// B's one renewal, by hand, shows whether the store has its lock. It has time for that.
	second, err := b.resume(order{Name: p.name, Handle: left.Handle, NoRenew: true, TTL: 3 * p.TTL})
	var no *refusal
	if errors.As(err, &no) && no.Lost && now() < left.Asked.Add(p.TTL/2) {
		p.History.NoteUntrue("%s was told that the lock of %s has ended, long before its TTL: %s", b.Name, a.Name, no.Err)
		return
	}
	p.must(err)
	second.Write(3)
	if !second.mustRenew() {
		return
	}
	wake()
	second.Write(4)
	if !second.Unlock() {
		p.notPlayed("it is unknown whether B has unlocked")
	}
	third, err := c.Try(patience)
	if errors.As(err, &no) && no.Taken {
		p.History.NoteUntrue("%s has unlocked, and %s is told that the lock is taken: %s", b.Name, c.Name, no.Err)
		return
	}
	p.must(err)
	third.Write(5)
	third.Unlock()
}

func suspendedHolder(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	first := a.Lock()
	p.suspend(first, b, func() { first.Write(1) })
}

func deadHolder(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	a.Lock().Write(1)
	waiting := b.Locking()
	p.must(a.Kill())
	next := waiting.NextWithin(p.long(), func() {})
	next.Write(2)
	next.Unlock()
}

func unlockByAFormerHolder(p *play) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	first := a.LockPlain()
	first.AwaitLoss()
	second := b.Lock()
	first.Unlock()
	p.nobodyElse(c)
	second.Write(2)
	second.Unlock()
}

// suspend stops the process of a holder while b waits for the lock, and then has the
// holder do something. A holder that keeps its lock all the while does so before it
// unlocks, which is no fault.
func (p *play) suspend(first workerLock, b *worker, do func()) {
	p.must(first.Worker.Suspend())
	waiting := b.Locking()
	second, ok := waiting.Within(p.silence())
	if ok {
		second.Write(2)
	}
	p.must(first.Worker.Wake())
	do()
	if !ok {
		first.Unlock()
		second = waiting.Wait()
	}
	second.Unlock()
}

// takeOver has b get the lock of a paused holder and do something, and then lets the
// paused holder write. If a paused holder keeps its lock, b waits.
func (p *play) takeOver(b *worker, do func(workerLock), wake func(), first workerLock) {
	waiting := b.Locking()
	if second, ok := waiting.Within(p.silence()); ok {
		p.Sleep(p.TTL / 8) // so that a reader of the timeline sees one thing after another
		do(second)
		p.Sleep(p.TTL / 8)
		wake()
		p.Sleep(p.TTL / 8)
		second.Write(3)
		second.Unlock()
		return
	}
	wake()
	first.Unlock()
	second := waiting.Wait()
	do(second)
	second.Unlock()
}
