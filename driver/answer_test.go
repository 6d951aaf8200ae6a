package driver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// Others have both of two slots. Whoever asks for one of three asks another question.
func TestWhatOneOfTwoSlotsWasToldIsNoAnswerForOneOfThree(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		others := l.Another()
		one, two := mustLock(t, others, locker.WithSlots(2)), mustLock(t, others, locker.WithSlots(2))
		l.Link().Delay(time.Second)
		first := trying(t.Context(), l, locker.WithSlots(2))
		synctest.Wait()
		second := trying(t.Context(), l, locker.WithSlots(3))
		time.Sleep(10 * time.Second)
		failed(t, first, locker.ErrTaken)
		failed(t, second, locker.ErrMismatch, locker.ErrTaken)
		l.Link().Delay(0)
		mustUnlock(t, one)
		mustUnlock(t, two)
	})
}

// Others read. A writer's try is told so, and with it the writer that waits. A reader, who is told
// nothing, asks next, and the store falls silent. The writer goes on waiting: it was told "taken".
func TestAWaiterThatWasToldWaitsThroughTheSilenceThatAnotherMeets(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		others := mustLock(t, l.Another(), locker.WithShared())
		l.Link().Delay(time.Second)
		first := trying(t.Context(), l)
		reader, writer := trying(t.Context(), l, locker.WithShared()), asking(t.Context(), l)
		time.Sleep(2*time.Second + time.Millisecond)
		failed(t, first, locker.ErrTaken)
		l.Link().Cut()
		time.Sleep(10 * time.Second)
		failed(t, reader, locker.ErrUnavailable)
		select {
		case o := <-writer:
			t.Fatalf("the wait has ended: %v", o.err)
		default:
		}
		l.Link().Delay(0)
		l.Link().Heal()
		time.Sleep(time.Minute)
		mustUnlock(t, others)
		time.Sleep(time.Minute)
		mustUnlock(t, granted(t, writer))
	})
}
