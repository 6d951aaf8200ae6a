/*
 * Turns in memory: goroutines of one process pass its lease on to each other, each with the next
 * number of the range that the lease has, and the store is not asked. It is about package driver:
 * line.go, turn.go, acquire.go, renewal.go and cleanup.go.
 *
 * Two processes lock one name. In each of them callers stand in line (line.enter). The one in
 * front asks the store (Locker.ask) and has a turn (beginLease). When it unlocks, the turn of the
 * next in line begins with the same lease (endTurn, heir, pass), or the lease goes back and the
 * next asks (Unlock, leaveFront). Everything that is sent may be late, or lost. Meanwhile:
 *
 *   the 25 ms end in which goroutines may pass the lease on (fits);
 *   a renewal is under way, and its answer comes at any time, also when another turn or
 *   another lease is there (renew, settle);
 *   the lease's validity ends on the process's clock (expire, lose);
 *   an operator breaks the lock, and the process does not know (Locker.Break);
 *   the holder gives its place in the store away, as a condition of a request that comes late
 *   (Locker.Pin);
 *   the one in front gives up, and what it has sent may still be granted (giveUp, abandon).
 *
 * Assumed, and shown elsewhere: the store grants to one at a time, with ranges in order, and ends
 * a lease by itself only when its process believes in it no more (lease.pml). Not in the model:
 * shared locks and slots, which have no turns; WithMinHold; a line whose calls want different
 * options (they are as a lease that is not passed on); callers that leave the line before they
 * are in front (they are as if they had not come). With COUNTED the numbers come from a counter
 * (WithCounter): then nothing is passed on. There it is assumed that nobody breaks a lock between
 * its grant and the draw; what the documentation says of such locks excepts that, too.
 *
 * Checked in every state:
 *
 *   two_turns_at_once      at most one turn that its process believes in, except one on a lease
 *                          that was broken
 *   number_given_twice     no number is handed out twice
 *   numbers_go_back        numbers rise from turn to turn within a lease, and from lease to
 *                          lease; so a turn on a lease that is over has one below its successor's
 *   refused_a_live_holder  the guard refuses nobody whom the store still has
 *   live_turn_is_ended     only what happened to its own lease ends a turn
 *   condition_met_late     a condition is not met any more when another turn is under way
 *   other_is_kept_waiting  when the 25 ms are over, no further turn begins while another process
 *                          waits in the store
 *   invalid end state      nobody stands in line for ever
 *
 * Wrong, and kept:
 *
 *   EARLY          the next turn begins before the former has ended
 *   NO_RANGE_END   a lease has more turns than numbers
 *   PASS_LOST      a lease whose validity is over is passed on
 *   PASS_PINNED    a lease whose place in the store was given away is passed on
 *   PASS_COUNTED   numbers come from a counter (WithCounter), and the lease is passed on
 *   STALE_ANSWER   a renewal that is answered "lost" ends whichever turn is under way
 *   PASS_RELEASED  the release was sent, and the next turn begins on the lease nevertheless
 *   NO_BOUND       a lease is passed on for as long as it has numbers
 *   FORGOTTEN      a loss does not let the next in line come to the front
 *
 * Bounds: two processes with CALLS calls, or one less, one of which at most stands in line; ranges
 * of RANGE numbers, GRANTS grants, one give-up, one condition and one break. A break of a rule needs two leases and three turns at
 * most: one that is over, the one that follows it, and one that comes too late.
 *
 * With TRACE the model does what a test of the driver has written down, and nothing else, and
 * tells whether it can: see trace.sh.
 */
mtype = { nobody, asks, holds, passes, gives_back };

/* The store. A lease is known by the number of its grant, from 1. */
short owner;    /* the lease that has the lock, or 0 */
byte owners;    /* the process that it was granted to */
bool back;      /* a release or a withdrawal of it is under way */
short grants;   /* so far */

/* Each process: its line, and the lease of the one in front. */
mtype front[2] = nobody;
byte line[2], calls[2];
short lease[2];  /* 0 if there is none */
short number[2]; /* of the turn */
byte turn[2];    /* of the lease, from 1 */
bool late[2], pinned[2];
short coming[2]; /* a grant that is on its way */
bool stray[2];   /* a request of one that gave up is, too */
short renewal[2]; /* the lease that is being renewed, or 0 */
bool gone[2];    /* the answer will be that it is lost */

bool given_up, broke; /* once each */

/* What nobody in the model knows. */
bool broken[2];  /* the process's lease was broken */
bool ran_out[2]; /* the validity of its lease is over */
short condition, condition_of; /* the lease and the number that were given away */
bool two_turns_at_once, number_given_twice, numbers_go_back, refused_a_live_holder;
bool live_turn_is_ended, condition_met_late, other_is_kept_waiting;

#define other (1 - p)
#define believes(p) (front[p] == holds)

#ifdef TRACE
#include "trace.pml"
#else
#ifndef CALLS
#define CALLS 3
#endif
#ifndef GRANTS
#define GRANTS 3
#endif
#define RANGE 2
#define NUMBERS (GRANTS * RANGE + 1)
#define BEFORE 1 /* Store is declared before the processes */
#define by_process(what, number) true
#define by_store(what, number) true
#define may_end(p) true
#define taken_from_trace(who) skip
#define somebody_behind (line[p] > 0)
#define more_calls (calls[p] < CALLS - p)
#define count_call calls[p]++
#define may_give_up (!given_up)

byte lease_of[NUMBERS + 1]; /* the lease of each number that was handed out */
byte n, highest;            /* are 0 between two steps */
#endif

/* The guard's mark is at most the highest number that was handed out: then that turn has written. */
#define refused(p) (believes(p) && owner == lease[p] && number[p] < highest)

#ifdef PASS_COUNTED
#define COUNTED
#endif
#ifdef COUNTED
byte counter;
#define drawn (counter + 1)
#else
#define drawn ((lease[p] - 1) * RANGE + turn[p])
#endif

#if !defined(COUNTED) || defined(PASS_COUNTED)
#define PASSES
#endif
#ifdef PASS_PINNED
#define is_pinned false
#else
#define is_pinned pinned[p]
#endif
#ifdef NO_BOUND
#define is_late false
#else
#define is_late late[p]
#endif
#ifdef NO_RANGE_END
#define used_up false
#else
#define used_up (turn[p] == RANGE)
#endif
#define heir (somebody_behind && !is_pinned && !is_late && !used_up)

#if defined(EARLY)
#define begins_early (believes(p) && heir)
#elif defined(PASS_RELEASED)
#define begins_early (front[p] == gives_back && heir)
#else
#define begins_early false
#endif
#ifdef STALE_ANSWER
#define ends_the_turn believes(p)
#else
#define ends_the_turn (believes(p) && lease[p] == renewal[p])
#endif
#ifdef FORGOTTEN
#define gives_back_now (front[p] == gives_back && lease[p])
#else
#define gives_back_now (front[p] == gives_back)
#endif

/* begin: a turn begins with the process's lease. */
inline begin() {
	turn[p]++;
	number[p] = drawn;
	printf("process %d: turn %d of lease %d begins, with number %d\n", p, turn[p], lease[p], number[p]);
#ifndef TRACE
	two_turns_at_once = believes(p) || believes(other) && !broken[p] && !broken[other];
	assert(!two_turns_at_once);
	number_given_twice = lease_of[number[p]] != 0;
	assert(!number_given_twice);
	for (n : 1 .. NUMBERS) {
		if
		:: lease_of[n] && (lease_of[n] <= lease[p] && n > number[p] || lease_of[n] > lease[p] && n < number[p]) -> numbers_go_back = true
		:: else
		fi
	}
	lease_of[number[p]] = lease[p]; front[p] = holds;
	for (n : 1 .. NUMBERS) {
		if
		:: lease_of[n] -> highest = n
		:: else
		fi
	}
	refused_a_live_holder = refused(p) || refused(other);
	assert(!refused_a_live_holder);
	assert(!numbers_go_back);
	n = 0; highest = 0;
#else
	unlocking[p] = false;
#endif
#ifdef COUNTED
	counter++;
#endif
	front[p] = holds
}

/* pass: the turn of the next in line begins. */
inline pass() {
#ifndef TRACE
	other_is_kept_waiting = late[p] && front[other] == asks;
	assert(!other_is_kept_waiting);
	line[p]--;
#endif
	begin()
}

/* over: the process has the lease no more. */
inline over() {
	lease[p] = 0; number[p] = 0; turn[p] = 0; late[p] = false; pinned[p] = false; broken[p] = false; ran_out[p] = false
}

/* advance: the next in line comes to the front, and asks. */
inline advance() {
	if
	:: line[p] > 0 -> line[p]--; front[p] = asks
	:: else -> front[p] = nobody
	fi
}

/* lose: the turn under way ends, and the next in line asks for another lease. What is left of
 * this one is removed. */
inline lose() {
	back = back || owner == lease[p];
	over();
#ifdef FORGOTTEN
	front[p] = gives_back
#else
	advance()
#endif
}

/* expire: the process's clock says that its lease is over. */
inline expire() {
#ifdef PASS_LOST
	ran_out[p] = true;
	if
	:: heir -> front[p] = passes; pass()
	:: else -> lose()
	fi
#else
	lose()
#endif
}

/* free: the store has the lease no more. A request to give it back would find nothing, and is
 * forgotten. */
inline free() { owner = 0; back = false }

#define in_time (believes(owners) && !ran_out[owners] || front[owners] == passes)

active proctype Store() {
end:	do
	:: d_step { owner && back && by_store(freed, owner) ->
		taken_from_trace(store);
		printf("lease %d is given back to the store\n", owner);
		free() }
	:: d_step { owner && !(lease[owners] == owner && in_time) && by_store(freed, owner) ->
		taken_from_trace(store);
		printf("the store ends lease %d, whose time is over\n", owner);
		if
		:: coming[owners] == owner -> coming[owners] = 0
		:: else
		fi;
		free() }
#ifndef TRACE
	:: d_step { owner && lease[owners] == owner && !broke ->
		broke = true; broken[owners] = true;
		printf("somebody breaks lease %d\n", owner);
		free() }
	:: d_step { condition && owner == condition ->
		printf("a request arrives whose condition is lease %d\n", condition);
		condition_met_late = believes(owners) && number[owners] != condition_of;
		assert(!condition_met_late) }
	:: _nr_pr == 1 -> break
#endif
	od
}

active [2] proctype Process() {
	byte p = _pid - BEFORE;
	do
	:: d_step { more_calls && front[p] == nobody ->
		count_call; front[p] = asks;
		printf("process %d: a call asks the store\n", p) }
	:: d_step { more_calls && front[p] != nobody && !somebody_behind ->
		count_call; line[p]++;
		printf("process %d: a call stands in line\n", p) }

	/* The one in front asks. */
	:: d_step { owner == 0 && grants < GRANTS && front[p] == asks && !coming[p] && by_store(granted + p, grants + 1) ->
		taken_from_trace(store);
		grants++; owner = grants; owners = p; coming[p] = grants;
		printf("the store grants lease %d to process %d\n", grants, p) }
	:: d_step { coming[p] && by_process(began, (coming[p] - 1) * RANGE + 1) ->
		taken_from_trace(p);
		lease[p] = coming[p]; coming[p] = 0;
		begin() }
	:: d_step { front[p] == asks && may_give_up ->
		given_up = true;
		printf("process %d: the call in front gives up\n", p);
		if
		:: coming[p] -> back = back || owner == coming[p]
		:: else -> stray[p] = true
		fi;
		coming[p] = 0; broken[p] = false;
		advance() }
	:: d_step { owner == 0 && grants < GRANTS && stray[p] && by_store(granted + p, grants + 1) ->
		taken_from_trace(store);
		grants++; owner = grants; owners = p; back = true;
		printf("the store grants lease %d to process %d, where nobody wants it any more\n", grants, p) }
	:: d_step { stray[p] -> stray[p] = false;
		printf("the store refuses what comes from process %d so late\n", p) }

	/* A turn ends. */
	:: d_step { believes(p) && !late[p] && by_process(shared_for_25_ms, lease[p]) ->
		taken_from_trace(p);
		late[p] = true;
		printf("process %d: the 25 ms are over\n", p) }
#ifdef PASSES
	:: d_step { believes(p) && heir && may_end(p) && by_process(ended, number[p]) ->
		taken_from_trace(p);
		front[p] = passes;
		printf("process %d: turn %d of lease %d ends\n", p, turn[p], lease[p]) }
	:: d_step { (front[p] == passes || begins_early) && by_process(began, number[p] + 1) ->
		taken_from_trace(p);
		pass() }
#endif
	:: d_step { believes(p) && may_end(p) ->
		front[p] = gives_back; back = back || owner == lease[p];
		printf("process %d: turn %d of lease %d ends, and the lease is to go back\n", p, turn[p], lease[p]) }
	:: d_step { gives_back_now && (by_process(ended, number[p]) || owner != lease[p] && by_process(told, number[p])) ->
		taken_from_trace(p);
		printf("process %d: the release is answered, or not waited for any more\n", p);
		over();
		advance() }

	/* The lease is renewed, and ends. */
	:: d_step { believes(p) && !renewal[p] ->
		renewal[p] = lease[p];
		printf("process %d: a renewal of lease %d is sent\n", p, lease[p]) }
	:: d_step { renewal[p] && !gone[p] && owner == renewal[p] ->
		renewal[p] = 0;
		printf("process %d: the renewal has worked, or its answer is lost\n", p) }
	:: d_step { renewal[p] && !gone[p] && owner != renewal[p] ->
		gone[p] = true;
		printf("the store answers process %d that lease %d is gone\n", p, renewal[p]) }
	:: d_step { gone[p] && ends_the_turn && by_process(told, number[p]) ->
		taken_from_trace(p);
		renewal[p] = 0; gone[p] = false;
		printf("process %d: the answer ends the turn under way\n", p);
		live_turn_is_ended = owner == lease[p];
		assert(!live_turn_is_ended);
		lose() }
	:: d_step { gone[p] && !ends_the_turn ->
		renewal[p] = 0; gone[p] = false;
		printf("process %d: the answer is about a lease that is over already\n", p) }
	:: d_step { believes(p) && !ran_out[p] && by_process(lost, number[p]) ->
		taken_from_trace(p);
		printf("process %d: the validity of lease %d is over\n", p, lease[p]);
		expire() }
#ifndef TRACE
	:: d_step { believes(p) && !condition ->
		condition = lease[p]; condition_of = number[p]; pinned[p] = true;
		printf("process %d: the holder of number %d gives its place in the store away\n", p, number[p]) }
	:: d_step { !more_calls && front[p] == nobody || front[p] == asks && grants == GRANTS } -> break
#endif
	od
}
