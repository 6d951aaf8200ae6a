package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
)

// newReader is newAttempt for a reader, with a holder's text.
func newReader(t *testing.T, s *store, name, holder string) *attempt {
	t.Helper()
	req, err := driver.NewRequest(nil, name, locker.WithShared(), locker.WithHolder(holder))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// drawOn has nodes grant a part of an attempt each, and returns their numbers.
func drawOn(t *testing.T, s *store, a *attempt, nodes ...int) (numbers []uint64) {
	t.Helper()
	for _, i := range nodes {
		st, err := s.ask(&a.parts[i], new(instant), s.nodes[i], redisnode.Ask{Offer: time.Now().UnixMicro()}, nil)
		if err != nil || st.First == 0 {
			t.Fatalf("node %d: %+v, %v", i, st, err)
		}
		numbers = append(numbers, st.First)
	}
	return numbers
}

// A raised node is asked again: its first answer was lost, or another contest of the
// attempt asks.
func TestReaderKeepsItsNumberWhereItAsksAgain(t *testing.T) {
	s, servers := threeNodes(t)
	a := newReader(t, s, "a", "")
	drawn := drawOn(t, s, a, 0)[0]
	if again := drawOn(t, s, a, 0)[0]; again != drawn {
		t.Errorf("asked again, it answers %d after %d", again, drawn)
	}
	for range 2 { // the second is a late copy
		if raised, err := s.nodes[0].raise(&a.parts[0], drawn+10); err != nil || raised != drawn+10 {
			t.Errorf("raised to %d, %v, want %d", raised, err, drawn+10)
		}
	}
	if raised, err := s.nodes[0].raise(&a.parts[0], drawn+5); err != nil || raised != drawn+10 {
		t.Errorf("a late request to raise it by less comes to %d, %v", raised-drawn, err)
	}
	if again := drawOn(t, s, a, 0)[0]; again != drawn+10 {
		t.Errorf("asked again, it answers %d after %d", again, drawn+10)
	}
	if next := drawOn(t, s, newReader(t, s, "a", ""), 0)[0]; next <= drawn+10 {
		t.Errorf("the next reader has %d after %d", next, drawn+10)
	}
	servers[0].Do("DEL", "lockstile:e:{a}") // its lease has ended
	if _, err := s.nodes[0].raise(&a.parts[0], drawn+100); err == nil {
		t.Error("a node that has it no more confirms its number")
	}
}

// A majority has the first under one number, and one node under another, for it came late
// there. The second has one node only.
func TestReaderIsShownAndBrokenByWhatAMajoritySays(t *testing.T) {
	s, servers := threeNodes(t)
	first, second := newReader(t, s, "a", "first"), newReader(t, s, "a", "second")
	number := drawOn(t, s, first, 0)[0] + 1_000_000 // a second
	drawOn(t, s, first, 1, 2)
	late := number + 5000
	for i, has := range []uint64{number, number, late} {
		if _, err := s.nodes[i].raise(&first.parts[i], has); err != nil {
			t.Fatal(err)
		}
	}
	alone := drawOn(t, s, second, 0)[0]
	for i, left := range []time.Duration{time.Hour, 20 * time.Minute, time.Minute} { // a majority has it until the second ends
		servers[i].Do("ZADD", "lockstile:e:{a}", fmt.Sprint(time.Now().Add(left).UnixMilli()), first.parts[0].Value)
	}
	for range 10 { // answers come in another order each time
		info, err := s.Inspect(t.Context(), "a")
		if err != nil || !info.Held || info.Kind != locker.KindShared || len(info.Holders) != 1 || info.Holders[0].Text != "first" ||
			info.Holders[0].Number != locker.Number(number) || info.Holders[0].Slot != -1 || info.TimeLeft.Round(time.Minute) != 20*time.Minute || info.TimeLeft != info.Holders[0].TimeLeft ||
			uint64(info.Token) != late || info.Holder != "" {
			t.Fatalf("%+v, %v, want number %d, and the last that was drawn is %d", info, err, number, late)
		}
	}
	if infos, err := s.List(t.Context(), ""); err != nil || len(infos) != 1 || len(infos[0].Holders) != 1 {
		t.Errorf("listed: %+v, %v", infos, err)
	}
	for _, other := range []uint64{late, alone} {
		if ok, err := s.Break(t.Context(), "a", locker.Number(other)); ok || err != nil {
			t.Errorf("Break of a number that no majority has: %v, %v", ok, err)
		}
	}
	if ok, err := s.Break(t.Context(), "a", locker.Number(number)); !ok || err != nil {
		t.Errorf("Break: %v, %v", ok, err)
	}
	s.locks.Close() //nolint:errcheck // returns nil; the slowest node has been asked, too
	for i, srv := range servers {
		if n := srv.Do("ZSCORE", "lockstile:e:{a}", first.parts[0].Value); n != "" {
			t.Errorf("node %d still has it", i)
		}
	}
	if srv := servers[0]; srv.Do("ZSCORE", "lockstile:e:{a}", second.parts[0].Value) == "" {
		t.Error("what another reader has there was broken, too")
	}
}

// Whoever has given up may still have a place at nodes that were not reached.
func TestWaiterIsOneWhomAMajorityKnows(t *testing.T) {
	s := &store{quorum: 3}
	for want, waiters := range map[int][]int{0: {1, 0, 2, 0, 0}, 1: {0, 1, 3, 2, 0}, 2: {2, 3, 2}} {
		var views []redisnode.View
		for _, n := range waiters {
			views = append(views, redisnode.View{Info: locker.Info{Waiters: n}})
		}
		if got := s.merge(views).Waiters; got != want {
			t.Errorf("nodes with %v waiters say that %d wait, want %d", waiters, got, want)
		}
	}
}

// Each node has granted the lock at another time, and the last of three too late to count: it has drawn
// a token of its own.
func TestLockIsShownAsAMajorityHasIt(t *testing.T) {
	hold := func(value string, number uint64, left time.Duration, kind locker.Kind) redisnode.View {
		h := redisnode.Hold{Kind: kind, Value: value, Holder: locker.Holder{Text: "me", Number: locker.Number(number), Slot: -1, TimeLeft: left}}
		return redisnode.View{Holds: []redisnode.Hold{h}, Info: locker.Info{Token: 9}}
	}
	s := &store{quorum: 2}
	for _, kind := range []locker.Kind{locker.KindExclusive, locker.KindShared} {
		views := []redisnode.View{hold("v", 7, 10*time.Second, kind), hold("v", 7, 30*time.Second, kind), hold("v", 9, 20*time.Second, kind)}
		info := s.merge(views)
		token := uint64(info.Token)
		if kind == locker.KindShared {
			token = uint64(info.Holders[0].Number)
		}
		if !info.Held || info.Kind != kind || info.TimeLeft != 20*time.Second || token != 7 {
			t.Errorf("%+v", info)
		}
		if info := s.merge([]redisnode.View{views[0], hold("w", 8, time.Minute, kind), {}}); info.Held || info.TimeLeft != 0 || len(info.Holders) > 0 {
			t.Errorf("no two nodes have the same holder, and it is shown as %+v", info)
		}
	}
}

func TestNodesThatHaveNotAnsweredAreWaitedForWhereTheyMatter(t *testing.T) {
	hold := func(value string, number uint64) redisnode.View {
		return redisnode.View{Holds: []redisnode.Hold{{Value: value, Holder: locker.Holder{Number: locker.Number(number)}}}}
	}
	s := &store{quorum: 3, nodes: make([]*node, 5)}
	for _, c := range []struct {
		views []redisnode.View
		want  bool
	}{
		{[]redisnode.View{{}, {}, {}}, true},
		{[]redisnode.View{hold("v", 7), hold("v", 7), hold("v", 7)}, true},
		{[]redisnode.View{hold("v", 7), hold("v", 7), hold("v", 8)}, false}, // two more may have 8
		{[]redisnode.View{hold("v", 7), {}, {}}, false},
		{[]redisnode.View{hold("v", 7), {}, {}, {}}, true},
		{[]redisnode.View{hold("v", 7), hold("w", 8), {}}, false},
		{[]redisnode.View{hold("v", 7), hold("w", 8), {}, {}, {}}, true},
	} {
		if got := s.decided(c.views); got != c.want {
			t.Errorf("%+v: %v, want %v", c.views, got, c.want)
		}
	}
}

// A batch of renewals has readers and a writer. One reader was broken, one has a minority.
func TestRenewalsOfReadersAndWritersAreDecidedOneByOne(t *testing.T) {
	s, servers := threeNodes(t)
	writer := newAttempt(t, s)
	one, two, broken, few := newReader(t, s, "b", "1"), newReader(t, s, "b", "2"), newReader(t, s, "b", "3"), newReader(t, s, "b", "4")
	all := []*attempt{writer, one, two, broken, few}
	for _, a := range all {
		drawOn(t, s, a, 0, 1, 2)
	}
	for i := range servers {
		if _, err := s.nodes[i].redis.Break(t.Context(), broken.parts[i].Keys, func(h redisnode.Hold) bool { return h.Text == "3" }); err != nil {
			t.Fatal(err)
		}
	}
	for _, srv := range servers[1:] {
		srv.Do("ZREM", "lockstile:e:{b}", few.parts[0].Value)
	}
	errs := s.Renew(t.Context(), all)
	for i, a := range []error{nil, nil, nil, &locker.LostError{Reason: locker.ReasonForced}, &locker.LostError{Reason: locker.ReasonTakenOver}} {
		want := asLost(a)
		if got := asLost(errs[i]); (got == nil) != (want == nil) || got != nil && got.Reason != want.Reason || got == nil && errs[i] != nil {
			t.Errorf("attempt %d: %v, want %v", i, errs[i], a)
		}
	}
}

// A node that has lost a reader's entry before its number was written there has no vote: a
// writer may have it there already, with a smaller token.
func TestNodeThatCannotConfirmAReadersNumberHasNoVote(t *testing.T) {
	s, servers := threeNodes(t)
	for i, srv := range servers {
		srv.Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v 1 h", 4000000000000000+10*uint64(i)))
		srv.Do("ACL", "SETUSER", "default", "-hvals") // the write-back needs it, a grant does not
	}
	a := newReader(t, s, "a", "")
	if g, _, err := s.Acquire(t.Context(), a, nil); err == nil {
		t.Fatalf("granted with a number that is on one node: %+v", g)
	}
	if err := s.Withdraw(t.Context(), a); err != nil {
		t.Error(err)
	}
	for i, srv := range servers {
		srv.Do("ACL", "SETUSER", "default", "+hvals")
		for end := time.Now().Add(25 * time.Second); srv.Do("EXISTS", "a", "lockstile:e:{a}") != "0"; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("something is left on node %d", i)
			}
		}
	}
	if g, _, err := s.Acquire(t.Context(), newReader(t, s, "a", ""), nil); err != nil || g.Count != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}

// A name that one node has in slots, because somebody uses that node alone, does not keep a
// majority of others from it.
func TestNodeThatHasTheNameInSlotsFailsAlone(t *testing.T) {
	s, _ := threeNodes(t)
	req, err := driver.NewRequest(nil, "a", locker.WithSlots(2))
	if err != nil {
		t.Fatal(err)
	}
	terms := new(redisnode.Terms)
	if err := terms.Init(req, ""); err != nil {
		t.Fatal(err)
	}
	slot := s.newParts(terms)
	has := func(nodes ...int) {
		for _, i := range nodes {
			if st, err := s.nodes[i].redis.Acquire(t.Context(), &slot[i].Attempt, redisnode.Ask{Offer: time.Now().UnixMicro()}); err != nil || st.First == 0 {
				t.Fatalf("%+v, %v", st, err)
			}
		}
	}
	has(0)
	reader := newReader(t, s, "a", "")
	if _, _, err := s.Acquire(t.Context(), reader, nil); err != nil {
		t.Error(err)
	}
	if err := s.Release(t.Context(), reader, 0); err != nil {
		t.Error(err)
	}
	has(1)
	if _, _, err := s.Acquire(t.Context(), newAttempt(t, s), nil); !errors.Is(err, locker.ErrMismatch) {
		t.Errorf("where a majority has it in slots: %v", err)
	}
}
