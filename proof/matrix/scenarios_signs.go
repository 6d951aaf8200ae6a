package matrix

import "time"

var signScenarios = []Scenario{
	{
		Name: "between two signs of life", play: betweenTwoSigns,
		Story: "The server that a holder is connected to answers a renewal and stops a moment later. The other servers may not have heard of the renewal.",
		lacks: needs(func(s *System) bool { return s.Part != nil }, "there is no server that the others can do without"),
	},
}

// betweenTwoSigns is played several times, with renewals that come later and later: what
// the other servers have heard of by then is left to chance.
func betweenTwoSigns(p *play) {
	const rounds = 8
	b, _ := p.workerAt("B", false)
	for i := range rounds {
		a, server := p.workerAt("A", true)
		held := a.LockPlain()
		waiting := b.Locking()
		p.Sleep(p.TTL * time.Duration(24+4*i) / 100)
		p.Break("A renews, and its server stops", func() error {
			if err := held.tryRenew(); err != nil {
				p.History.Mark("%s: %v", a.Name, err) // it was too late for that
			}
			return server.Stop()
		})
		next := waiting.NextWithin(p.long(), func() {})
		next.Write(2)
		held.Write(1)
		p.Break("the server goes on", server.Resume)
		next.Unlock()
		p.must(a.Kill())
	}
}

// workerAt starts one more process, which finds only some of the servers.
func (p *play) workerAt(name string, spare bool) (*worker, Part) {
	part, err := p.System.Part(spare)
	p.must(err)
	w, err := p.startAt(p.ctx, name, part.URL, part.Net)
	p.must(err)
	return w, part
}
