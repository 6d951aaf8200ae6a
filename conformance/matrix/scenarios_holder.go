package matrix

import "github.com/lockstile/locker"

func holderScenarios() []Scenario {
	return []Scenario{
		{
			Name:   "pause before the write",
			Story:  "A holder looks at its lock, is paused for longer than its lease, and then writes.",
			Breaks: locker.PromptHolder,
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				first := a.Lock()
				wake := first.LookThenSleepThenWrite(1)
				p.takeOver(b, func(g Grant) { g.Write(2) }, wake, first)
			},
		},
		{
			Name:   "stale write comes first",
			Story:  "The same, but the new holder has not written anything yet when the stale write arrives: only its claim protects it.",
			Breaks: locker.PromptHolder,
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				first := a.Lock()
				wake := first.LookThenSleepThenWrite(1)
				p.takeOver(b, func(Grant) {}, wake, first)
			},
		},
		{
			Name:   "delayed write",
			Story:  "A holder writes in time, and the network delivers it when somebody else holds the lock.",
			Breaks: locker.PromptHolder,
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				first := a.Lock()
				deliver := first.WriteDelayed(1)
				p.suspend(first, b, deliver)
			},
		},
		{
			Name:  "suspended holder",
			Story: "A holder's process is stopped for longer than its lease; when it wakes it looks at its lock before it writes.",
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				first := a.Lock()
				p.suspend(first, b, func() { first.Write(1) })
			},
		},
		{
			Name:  "dead holder",
			Story: "A holder's process is killed.",
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				a.Lock().Write(1)
				waiting := b.Locking()
				p.must(a.Kill())
				g := waiting.NextWithin(p.long(), func() {})
				g.Write(2)
				g.Unlock()
			},
		},
		{
			Name:  "unlock by a former holder",
			Story: "A holder whose lock has ended unlocks while somebody else holds it.",
			Play: func(p *Play) {
				a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
				first := a.LockPlain()
				first.AwaitLoss()
				second := b.Lock()
				first.Unlock()
				p.nobodyElse(c)
				second.Write(2)
				second.Unlock()
			},
		},
	}
}

// suspend stops the process of a holder while b waits for the lock, and then has
// the holder do something. Where it keeps its lock all the while, it does so before
// it unlocks, which is no fault.
func (p *Play) suspend(first Grant, b *Worker, do func()) {
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

// takeOver has b get the lock of a holder that is paused, do something, and then
// lets the paused one write. Where a paused holder keeps its lock, b waits.
func (p *Play) takeOver(b *Worker, do func(Grant), wake func(), first Grant) {
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
