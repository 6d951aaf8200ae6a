package matrix

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
)

// updateScenarios are after Jepsen's pair for etcd 3.4.3: a set under a lock, which loses
// updates, and the same with the lock's key as a condition of the write, which must not
// (lock-set and lock-etcd-set in github.com/jepsen-io/etcd, src/jepsen/etcd/lock.clj).
var updateScenarios = []Scenario{
	{
		Name: "lost updates", Breaks: locker.PromptHolder, play: lostUpdates,
		Story: "Three processes add elements to a set. Under the lock, each reads the set, works, and writes it back with one more element. " +
			"Holders are paused between their read and their write. There are two such sets: one in a storage without a guard, and one in a storage with a guard.",
	},
}

const (
	randomPauses = 3 // after the one that is always the same
	pausesSeed   = 343
)

func lostUpdates(p *play) {
	a := &adders{play: p, workers: []*worker{p.Worker("A"), p.Worker("B"), p.Worker("C")}}
	a.calm()
	a.pauseFirst()
	a.History.Mark("from here on, somebody is paused at random (seed %d)", pausesSeed)
	random := rand.New(rand.NewPCG(pausesSeed, 0))
	for range randomPauses {
		n := len(a.workers)
		a.pauseDuring(a.workers[random.IntN(n)], random.Float64(), random.IntN(n))
	}
	a.readAll()
}

// adders are processes that add elements to a set.
type adders struct {
	*play
	workers []*worker
	last    atomic.Int64 // element
	before  int          // the last element before anybody was paused
}

// inRow is how many elements each process adds when all do.
const inRow = 2

// calm has all add while nobody is paused.
func (a *adders) calm() {
	a.all(together(a.workers, func(_ int, w *worker) {
		for range inRow {
			a.add(w.Lock(), order{Work: a.TTL / 20, Careful: true})
		}
	}))
	a.before = int(a.last.Load())
}

// pauseFirst stops a holder between its read and its write until another has added an
// element, or cannot get the lock.
func (a *adders) pauseFirst() {
	stopped, next := a.workers[0], a.workers[1]
	first := stopped.Lock()
	a.History.Fault("%s has the lock and reads the set. It is stopped before it writes", stopped.Name)
	o := a.adding(order{})
	wake := first.midway(o)
	waiting := next.Locking()
	second, ok := waiting.Within(a.silence())
	if ok {
		a.add(second, order{})
	}
	a.added(first, o.Value, wake())
	if !ok {
		a.add(waiting.Wait(), order{})
	}
}

// pauseDuring has all add. It stops one of them at some moment of its work, until so many
// elements were added by the others, or nobody gets the lock.
func (a *adders) pauseDuring(victim *worker, moment float64, elements int) {
	work, others := a.TTL/10, inRow*(len(a.workers)-1)
	granted, added := make(chan struct{}), make(chan struct{}, others)
	seen := sync.OnceFunc(func() { close(granted) })
	errs := together(a.workers, func(_ int, w *worker) {
		if w == victim {
			defer seen() // also if it fails
		}
		for range inRow {
			l := w.Lock()
			if w == victim {
				seen()
			}
			a.add(l, order{Work: work})
			if w != victim {
				added <- struct{}{}
			}
		}
	})
	<-granted
	a.Sleep(time.Duration(moment * float64(work)))
	before := len(added)
	a.must(victim.Suspend())
	a.await(added, min(before+elements, others))
	a.must(victim.Wake())
	a.all(errs)
}

// await waits until there were so many, unless nobody gets the lock.
func (a *adders) await(added <-chan struct{}, n int) {
	timer := time.NewTimer(a.silence())
	defer timer.Stop()
	for range n {
		select {
		case <-added:
		case <-timer.C:
			return
		case <-a.ctx.Done():
			a.must(context.Cause(a.ctx))
		}
	}
}

// readAll has the last holder read what is there.
func (a *adders) readAll() {
	for ; ; a.Sleep(a.TTL / 20) { // a machine that stalls takes the lock from a reader, too
		l, sets := a.workers[0].Lock(), a.History.Read()
		r, err := a.workers[0].answer(a.ctx, l.tell(order{Verb: "add", Sets: &sets}))
		a.must(err)
		l.Unlock()
		if r.Err != "" {
			continue
		}
		a.History.NoteFinal(*r.Sets, a.before)
		lost := a.History.Updates.Lost()
		a.History.Mark("%s reads the set. These updates are lost: without the guard %v, with it %v", a.workers[0].Name, lost.Unguarded, lost.Guarded)
		return
	}
}

// add has a holder add the next element, and unlock.
func (a *adders) add(l workerLock, o order) {
	o = a.adding(o)
	r, err := l.Worker.answer(a.ctx, l.tell(o))
	a.must(err)
	a.added(l, o.Value, r)
}

// adding makes an order of what the storage has now and the next element. The storage is this
// process, so whoever is given the order has read the set. A transaction reads its own.
func (a *adders) adding(o order) order {
	sets := a.History.Read()
	o.Verb, o.Value, o.Sets = "add", int(a.last.Add(1)), &sets
	return o
}

// added unlocks after an answer. An element that was added in a transaction is confirmed when
// the transaction is.
func (a *adders) added(l workerLock, element int, r report) {
	if r.Err != "" {
		a.History.Mark("%s does not add element %d: %s", l.Worker.Name, element, r.Err)
	}
	if l.Unlock() && r.Err == "" && a.transactional() {
		a.History.Confirm(element)
	}
}
