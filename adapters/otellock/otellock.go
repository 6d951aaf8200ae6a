// Package otellock shows locks in OpenTelemetry: their metrics, and a span with what
// becomes of a lock.
//
//	observer, err := otellock.Metrics(otellock.Options{})
//	if err != nil {
//		return err
//	}
//	observed := locker.Observe(locks, observer) // counts from here on
//	err = otellock.Do(ctx, observed, "invoices/42", work) // locker.Do, in a span
//
// # Metrics
//
// Beside each is its name in Prometheus.
//
//	lockstile.lock.waiting        lockstile_lock_waiting                calls that wait
//	lockstile.lock.held           lockstile_lock_held                   locks that are held
//	lockstile.lock.wait.duration  lockstile_lock_wait_duration_seconds  until the grant; how: store, memory
//	lockstile.lock.hold.duration  lockstile_lock_hold_duration_seconds  until the end, unlocked or lost
//	lockstile.lock.failed         lockstile_lock_failed_total           operation: lock, unlock; error.type
//	lockstile.lock.lost           lockstile_lock_lost_total             reason
//	lockstile.lock.not_renewed    lockstile_lock_not_renewed_total      renewals that did not work
//	lockstile.lock.renewed_late   lockstile_lock_renewed_late_total     those that worked late
//	lockstile.lock.cleaned_up     lockstile_lock_cleaned_up_total       error.type if that was not confirmed
//	lockstile.events.missed       lockstile_events_missed_total         events that were not counted
//
// The first four have the attribute lockstile.kind: exclusive, shared or slots. The number of
// grants is the number of waits: lockstile_lock_wait_duration_seconds_count, by lockstile.how.
// What failed has an error.type: outcome_unknown, taken, mismatch, refused, unavailable, closed,
// lost, unlocked or other. A refused call is not counted as unavailable. These words, and those
// of lockstile.reason ([locker.Reason.Code]), never change.
//
// # Names
//
// By default no metric has the name of a lock: a program that locks a million names has as
// many series as one that locks a single name. [Options].Label turns names into a few labels.
// Spans do have the name, and the token.
//
// # What is promised, and what is not
//
// Measuring delays no lock: observers run beside them. So a program that locks faster than
// the observer counts misses events. Then lockstile.events.missed says how many, durations
// and counts lack them, and the locks that are held or waited for at that moment are left
// out of lockstile.lock.held and waiting, for nobody knows any more which of them have ended.
// Better too few for a while than too many for ever. What happens later is counted again.
// The locks of a process that is killed vanish with its metrics.
//
// No metric, and no event of a span, has the value of a lock. An event has the text of the
// holder for whom a call waits ([locker.WithHolder], which must be no secret), and the text of
// errors. The hooks of Redis clients do record values, as arguments of requests: give
// redisotel its option WithDBStatement(false).
//
// That a span or a metric says nothing of a loss is no proof that there was none: whoever
// writes under a lock goes by its token.
package otellock
