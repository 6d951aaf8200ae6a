package etcd

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// unheard returns a holder and the heir of a hand-over that was not answered: it
// may have arrived, or may do so at any time.
func unheard(t *testing.T) (ctx context.Context, a, heir *attempt) {
	t.Helper()
	ctx, a, heir = setUp(t)
	if ahead, err := a.take(ctx, false); err != nil || ahead != "" {
		t.Fatal(ahead, err)
	}
	heir.turn, _ = heir.session.owner.lines.TryEnter("x", heir)
	heir.doubt = true
	return ctx, a, heir
}

// That the heir's own request was refused says nothing about the hand-over.
//
//	a hands over, unheard; the servers are short of space, and refuse what the
//	heir asks; it gives up, and they have space again
func TestHeirThatIsRefusedLeavesNothing(t *testing.T) {
	ctx, a, heir := unheard(t)
	if _, err := a.give(ctx, heir); err != nil {
		t.Fatal(err)
	}
	heir.on(heir.session)
	heir.doubt = true
	maintenance := pb.NewMaintenanceClient(a.session.owner.client.ActiveConnection())
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		if _, err := maintenance.Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	if _, err := heir.take(ctx, false); !refused(err) {
		t.Fatalf("without space: %v", err)
	}
	alarm(pb.AlarmRequest_DEACTIVATE)
	if !heir.session.owner.abandon(heir) {
		t.Error("the clean-up is not confirmed")
	}
	if got := left(t, ctx, heir); got != "" {
		t.Errorf("%q is left", got)
	}
}

// A hand-over that was not there when the heir looked may arrive afterwards.
//
//	a hands over; the heir sees a's key, fails to delete it, and gives up; the
//	hand-over arrives
func TestHandOverThatArrivesAfterTheHeirSawTheOldKeyIsVoid(t *testing.T) {
	ctx, a, heir := unheard(t)
	if resp, err := heir.ask(ctx, false); err != nil || resp.Succeeded {
		t.Fatalf("the heir's request: %v, %v", resp, err)
	}
	own, err := heir.find(ctx)
	if err != nil || own == nil || string(own.Value) != a.value {
		t.Fatalf("the heir finds %v, %v", own, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := heir.clear(over, own.ModRevision); err == nil {
		t.Fatal("a question whose context is over is answered")
	}
	before := heir.session.lastMark()
	if !heir.session.owner.abandon(heir) {
		t.Error("the clean-up is not confirmed")
	}
	heir.session.marks = before // as when the hand-over was sent
	if _, err := a.give(ctx, heir); err != nil {
		t.Fatal(err)
	}
	if got := left(t, ctx, heir); got == heir.value {
		t.Error("the heir that has gone has the lock")
	}
}
