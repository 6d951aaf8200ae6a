package etcd

import (
	"context"
	"testing"
	"time"
)

// setUp returns two attempts of one process at one name, on one session.
func setUp(t *testing.T) (ctx context.Context, a, b *attempt) {
	t.Helper()
	ctx, _, all := processes(t, 1)
	a = all[0]
	return ctx, a, again(t, ctx, a.session.owner)
}

// left returns the value that the attempt's key has in the store.
func left(t *testing.T, ctx context.Context, a *attempt) string {
	t.Helper()
	resp, err := a.kv().Get(ctx, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// giveUp cleans up after an attempt whose request may still be on its way, and
// makes the session forget that, as if what is sent next had been sent before.
func giveUp(t *testing.T, ctx context.Context, a *attempt) {
	t.Helper()
	before := a.session.lastMark()
	a.doubt = true
	if err := a.erase(ctx); err != nil {
		t.Fatal(err)
	}
	if a.session.lastMark() <= before {
		t.Error("the mark has not moved")
	}
	a.session.marks = before
}

func TestRequestThatArrivesAfterItsCleanUpIsVoid(t *testing.T) {
	for _, only := range []bool{false, true} {
		ctx, a, _ := setUp(t)
		giveUp(t, ctx, a)
		resp, err := a.ask(ctx, only)
		if err != nil {
			t.Fatal(err)
		}
		if got := left(t, ctx, a); resp.Succeeded || got != "" {
			t.Errorf("a late request succeeded (%v) and left %q", resp.Succeeded, got)
		}
		if ahead, err := a.take(ctx, only); err != nil || ahead != "" || !a.granted {
			t.Errorf("an attempt that did not know of the clean-up: %q, %v", ahead, err)
		}
	}
}

func TestHandOverThatArrivesAfterTheHeirHasGoneIsVoid(t *testing.T) {
	ctx, a, heir := setUp(t)
	if ahead, err := a.take(ctx, false); err != nil || ahead != "" {
		t.Fatal(ahead, err)
	}
	giveUp(t, ctx, heir)
	if released, err := a.give(ctx, heir); err != nil || !released {
		t.Errorf("the release: %v, %v", released, err)
	}
	if got := left(t, ctx, a); got != "" || heir.granted {
		t.Errorf("the heir that has gone was granted the lock (%v), and %q is left", heir.granted, got)
	}
}

func TestHandOverWhoseReplyWasLostIsTheHeirs(t *testing.T) {
	ctx, a, heir := setUp(t)
	if ahead, err := a.take(ctx, false); err != nil || ahead != "" {
		t.Fatal(ahead, err)
	}
	if _, err := a.give(ctx, heir); err != nil {
		t.Fatal(err)
	}
	token := heir.mod
	heir.on(heir.session) // as if it had not been told
	if ahead, err := heir.take(ctx, false); err != nil || ahead != "" || heir.mod != token {
		t.Errorf("the heir: %q, %v, revision %d instead of %d", ahead, err, heir.mod, token)
	}
}

// An heir that was not told is void when it asks, for its key is there. If it does
// not get to know why, it must not leave the key behind.
//
//	a hands over, unheard; the heir asks, is void, and gives up before it has
//	found its key
func TestHeirThatGivesUpBeforeItFindsItsKeyLeavesNothing(t *testing.T) {
	ctx, a, heir := setUp(t)
	l := a.session.owner
	if ahead, err := a.take(ctx, false); err != nil || ahead != "" {
		t.Fatal(ahead, err)
	}
	if _, err := a.give(ctx, heir); err != nil {
		t.Fatal(err)
	}
	heir.on(heir.session)
	resp, err := heir.ask(ctx, false)
	if err != nil || resp.Succeeded {
		t.Fatalf("the heir's request: %v, %v", resp, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := heir.find(over); err == nil {
		t.Fatal("a question whose context is over is answered")
	}
	heir.turn, _ = l.lines.TryEnter("x", heir)
	if !l.abandon(heir) {
		t.Error("the clean-up is not confirmed")
	}
	if got := left(t, ctx, heir); got != "" {
		t.Errorf("%q is left", got)
	}
}

func TestCleanUpDeletesNobodyElsesKey(t *testing.T) {
	ctx, a, b := setUp(t)
	if _, err := a.take(ctx, false); err != nil {
		t.Fatal(err)
	}
	for _, doubt := range []bool{false, true} {
		b.doubt = doubt
		if err := b.erase(ctx); err != nil {
			t.Fatal(err)
		}
		if got := left(t, ctx, a); got != a.value {
			t.Errorf("another attempt's clean-up left %q", got)
		}
	}
	if err := a.erase(ctx); err != nil {
		t.Fatal(err)
	}
	if got := left(t, ctx, a); got != "" {
		t.Errorf("its own clean-up left %q", got)
	}
}

func TestKeyThatAnEarlierAttemptHasLeftIsNotTakenOver(t *testing.T) {
	for _, only := range []bool{false, true} {
		ctx, a, b := setUp(t)
		if _, err := a.take(ctx, false); err != nil {
			t.Fatal(err)
		}
		if ahead, err := b.take(ctx, only); err != nil || ahead != "" || b.mod <= a.mod {
			t.Errorf("%q, %v, revision %d after %d", ahead, err, b.mod, a.mod)
		}
		if released, err := a.give(ctx, nil); err != nil || released {
			t.Errorf("the earlier one's release: %v, %v", released, err)
		}
		if got := left(t, ctx, b); got != b.value {
			t.Errorf("the earlier one's release left %q", got)
		}
	}
}

func TestHeirOfAReleaseThatWasNotAnsweredIsInDoubt(t *testing.T) {
	ctx, a, heir := setUp(t)
	l := a.session.owner
	a.turn, _ = l.lines.TryEnter("x", a)
	entered := make(chan error, 1)
	go func() {
		var err error
		heir.turn, err = l.lines.Enter(ctx, "x", heir)
		entered <- err
	}()
	for _, ok := a.turn.Next(); !ok; _, ok = a.turn.Next() {
		time.Sleep(time.Millisecond) // until it is in line
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.release(over, a); err == nil {
		t.Error("a release whose context is over succeeded")
	}
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if !heir.doubt || heir.granted {
		t.Errorf("the heir is in doubt: %v, granted: %v", heir.doubt, heir.granted)
	}
	if !l.abandon(heir) {
		t.Error("the heir's clean-up is not confirmed")
	}
}

// Somebody who tidies the store by hand may delete the mark as well. The Locker
// must not take all its own requests for late ones from then on.
//
//	a clean-up moves the mark; the mark is deleted; the next attempt asks with
//	the mark that the session remembers, again and again
func TestMarkThatWasDeletedByHandStopsNobody(t *testing.T) {
	for _, only := range []bool{false, true} {
		ctx, a, b := setUp(t)
		a.doubt = true
		if err := a.erase(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.kv().Delete(ctx, a.session.mark); err != nil {
			t.Fatal(err)
		}
		if ahead, err := b.take(ctx, only); err != nil || ahead != "" || !b.granted {
			t.Errorf("the next attempt: %q, %v", ahead, err)
		}
		if released, err := b.give(ctx, nil); err != nil || !released {
			t.Errorf("its release: %v, %v", released, err)
		}
		// And the mark, made anew, still voids what was sent before.
		giveUp(t, ctx, a)
		if resp, err := a.ask(ctx, only); err != nil || resp.Succeeded {
			t.Errorf("a late request: %v, %v", resp, err)
		}
	}
}
