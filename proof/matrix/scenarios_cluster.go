package matrix

var clusterScenarios = []Scenario{
	{
		Name: "Cluster failover", play: clusterFailover,
		Story: "Every primary hands over to a replica that has all the data, while a lock is held and somebody waits for it.",
		lacks: needs(func(s *System) bool { return s.HandOver != nil }, "no server here hands over in good order"),
	},
	{
		Name: "Cluster reshard", play: clusterReshard,
		Story: "The keys of a lock move to another server, step by step, while it is held and somebody waits for it.",
		lacks: needs(func(s *System) bool { return s.Move != nil }, "no keys move here from one server to another"),
	},
}

func clusterFailover(p *play) {
	p.whileServed(Step{What: "every primary hands over to its replica", Do: p.System.HandOver})
}

func clusterReshard(p *play) { p.whileServed(p.System.Move(p.name)...) }

// whileServed takes steps that interrupt no store for long, while A holds the lock and B
// waits for it. After each step A must be able to renew: nothing that its lock assumes is
// broken.
func (p *play) whileServed(steps ...Step) {
	p.TTL *= 2 * slower // so that the steps take less, on any machine
	a, b := p.Worker("A"), p.Worker("B")
	held := a.Lock()
	waiting := b.Locking()
	p.Sleep(shortly)
	kept := true
	for _, step := range steps {
		p.Break(step.What, step.Do)
		kept = kept && held.mustRenew()
	}
	held.Write(1)
	held.Unlock()
	next := waiting.now().NextWithin(p.long(), func() {})
	next.Write(2)
	next.Unlock()
}
