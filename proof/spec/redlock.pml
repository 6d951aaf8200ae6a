/*
 * Redlock: the votes of a majority and their tokens, where nodes forget and answers are lost.
 *
 * Each node has a key, which says who has the lock there, and a counter. It grants the lock if its
 * key is free, and draws R numbers then. An attempt asks the nodes in any order. Its token is the
 * greatest first number of a majority; whichever node of that drew a smaller one is raised to the
 * end of the range, and only what a node has confirmed counts. Any answer may be lost. A holder
 * renews its lock at any majority that still has it. It unlocks, or loses the lock, or gives up, at
 * any time; only then do the leases that its validity rests on end, each at any time. (That belief
 * ends before the lease is what lease.pml shows. So there is no clock for leases here.)
 *
 * A node that is restarted forgets its key and its counter. It has no vote until every validity
 * that began before the restart is over or was renewed since: that is the time of DelayedRestart,
 * the largest TTL. By then the clock, which its numbers are lifted to, has passed every number that
 * was drawn before the restart: that is ForwardClock. Checked:
 *
 *   two_holders      at most one attempt believes that it has the lock
 *   numbers_go_back  ranges have the order of grants, and are disjoint: a token is greater than the
 *                    end of every earlier range
 *
 * MAJORITY has both. Each of the others leaves out one rule, and fails:
 *
 *   NO_WRITE_BACK    numbers_go_back: the greatest number of a majority is the token, and the other
 *                    nodes stay as they are
 *   LATE_WRITE_BACK  numbers_go_back: they are raised when Lock has returned
 *   RAISED_TO_T      numbers_go_back: they are raised to the token, not to the end of its range
 *   UNCONFIRMED      numbers_go_back: a node counts that has not confirmed that it was raised
 *   NO_CLOCK         numbers_go_back: a counter that was lost begins from nothing
 *   VOTES_AT_ONCE    two_holders: a node votes as soon as it was restarted
 *   MINORITY         two_holders: one of three nodes is enough
 *   TOO_LATE         two_holders: an attempt wins though its first leases may have ended
 *   REENTERS         two_holders: a renewal puts the key back where a node has forgotten it. Another
 *                    attempt may have that node's vote from before the restart
 *
 * It is about:
 *
 *   `redlock/acquire.go`: `run`, `begin`, `note`, `raise`
 *   `redlock/majority.go`: `judge`, `common`, `majority`, `tally`
 *   `redlock/attempt.go`: `ask`, `raise`, `mayHold`
 *   `redlock/renew.go`: `Renew`, `unanswered`
 *   `internal/redisnode/lua/grant.lua`: `grant`, `internal/redisnode/lua/quorum/clock.lua`: `clock`,
 *   `internal/redisnode/lua/quorum/vote.lua`, `internal/redisnode/lua/raise.lua`
 *   `internal/redisnode/quorum.go`: `NewOfQuorum`, `Raise`
 *   `internal/redisnode/lua/renew.lua`
 *   `driver/turn.go`: `beginLease`, `checkValidity`
 *
 * Assumed: nodes forget only when they are restarted, and their clocks show the same time, within
 * less than the largest TTL. What they draw stays behind the clock.
 *
 * Bounds: three nodes. What keeps a rule is what the nodes of one majority tell the next one, and
 * two different majorities of three have one node in common: of five they have no fewer. Two
 * attempts at a time, and any number one after another: what a third could do to these two is to
 * have nodes and draw numbers, as attempts do that are over and whose leases have not ended.
 * Numbers up to MOST, which are three ranges of R, and RESTARTS restarts: a majority, one after
 * the other. `redlock/model_test.go`: `TestModelKeepsItsPromises` runs five nodes with clocks,
 * late requests and readers, at random.
 */
#ifndef MOST
#define MOST 6
#endif
#ifndef RESTARTS
#define RESTARTS 2
#endif
#define NODES 3
#define R 2
#ifdef MINORITY
#define QUORUM 1
#else
#define QUORUM 2
#endif
#define OVER 3 /* has the lock where an attempt had it that is over */

/* The nodes. */
byte key[NODES];     /* the attempt that has the lock there, 0 is nobody */
byte counter[NODES]; /* the last number drawn */
bool young[NODES];   /* has been restarted, and has no vote yet */
byte clock[NODES];   /* the greatest number drawn before a restart, which the clock passes */

/* The attempts, which are 1 and 2. */
mtype = { holding, asking, idle };
mtype stage[3];
byte number[3 * NODES]; /* what each node's vote has come to, 0 is none */
byte asked[3];          /* nodes that have granted it the lock, as bits */
byte fresh[3];          /* that have granted or renewed it since its validity began, as bits */

/* What nobody in the model knows. */
byte before[3];         /* nodes that were restarted since its validity began, as bits */
byte restarts, holders;
byte high;              /* the greatest number drawn */
byte top;               /* the end of the latest range granted */
bool two_holders, numbers_go_back, done;
byte t, c;              /* are 0 between two steps */

#define next(n) (((n) + 1) % NODES)
#define bit(n) (1 << (n))
#define vote(a, n) number[(a) * NODES + (n)]
#define votes(a) ((vote(a, 0) > 0) + (vote(a, 1) > 0) + (vote(a, 2) > 0))
#define max(x, y) ((x) > (y) -> (x) : (y))
#define greatest(a) max(vote(a, 0), max(vote(a, 1), vote(a, 2)))
#define alike(a, n) ((vote(a, 0) == vote(a, n)) + (vote(a, 1) == vote(a, n)) + (vote(a, 2) == vote(a, n)))
#define lags(a, n) (vote(a, n) > 0 && vote(a, n) < greatest(a) && votes(a) >= QUORUM)

#ifdef NO_WRITE_BACK
#define can_raise(a, n) false
#define wins(a, n) (votes(a) >= QUORUM && vote(a, n) == greatest(a))
#elif defined(LATE_WRITE_BACK)
#define can_raise(a, n) (stage[a] == holding && lags(a, n))
#define wins(a, n) (votes(a) >= QUORUM && vote(a, n) == greatest(a))
#else
#define can_raise(a, n) (stage[a] == asking && lags(a, n))
#define wins(a, n) (vote(a, n) > 0 && alike(a, n) >= QUORUM)
#endif

#ifdef RAISED_TO_T
#define end_of(number) (number)
#else
#define end_of(number) ((number) + R - 1)
#endif

#ifdef UNCONFIRMED
#define unconfirmed(a) greatest(a)
#else
#define unconfirmed(a) 0
#endif

#ifdef VOTES_AT_ONCE
#define old_enough(n) true
#else
#define old_enough(n) (!((before[1] | before[2]) & bit(n)))
#endif

#define can_grant(a, n) (stage[a] != idle && !(asked[a] & bit(n)) && key[n] == 0 && !young[n] && counter[n] + R <= MOST)

#ifdef TOO_LATE
#define may_end(a, n) (stage[a] == asking || !(fresh[a] & bit(n)))
#else
#define may_end(a, n) (!(fresh[a] & bit(n)))
#endif

#ifdef REENTERS
#define renewable(a, n) (key[n] == a || key[n] == 0)
#else
#define renewable(a, n) (key[n] == a)
#endif

inline grant(a, n) {
	key[n] = a; asked[a] = asked[a] | bit(n); fresh[a] = fresh[a] | bit(n);
	counter[n] = counter[n] + R;
	high = max(high, counter[n])
}

inline raise(a, n) {
	if
	:: key[n] == a ->
		counter[n] = max(counter[n], end_of(greatest(a)));
		high = max(high, counter[n])
	:: else
	fi
}

inline believe(a, n) {
	t = vote(a, n);
	stage[a] = holding; holders++;
	printf("%d holds the lock, with tokens %d to %d\n", a, t, t + R - 1);
	two_holders = holders > 1;
	assert(!two_holders);
	numbers_go_back = t <= top;
	assert(!numbers_go_back);
	top = t + R - 1;
	t = 0;
#ifndef LATE_WRITE_BACK
	vote(a, 0) = 0; vote(a, 1) = 0; vote(a, 2) = 0
#endif
}

/* end: the attempt gives up, unlocks, or has lost the lock by its clock. */
inline end(a) {
	if :: stage[a] == holding -> holders-- :: else fi;
	stage[a] = idle; asked[a] = 0; fresh[a] = 0; before[a] = 0;
	vote(a, 0) = 0; vote(a, 1) = 0; vote(a, 2) = 0;
	for (c : 0 .. NODES - 1) { if :: key[c] == a -> key[c] = OVER :: else fi }
	c = 0
}

proctype AtNode(byte a; byte n) {
	do
	/* Grants, raises, and the token that they come to. */
	:: d_step { can_grant(a, n) ->
		grant(a, n); printf("node %d grants %d the lock, with number %d\n", n, a, counter[n] - R + 1);
		if :: stage[a] == asking -> vote(a, n) = counter[n] - R + 1 :: else fi }
	:: d_step { can_grant(a, n) && stage[a] == asking ->
		grant(a, n); printf("node %d grants %d the lock, and its answer is lost\n", n, a) }
	:: d_step { can_raise(a, n) ->
		raise(a, n); vote(a, n) = (key[n] == a -> greatest(a) : 0);
		printf("node %d is raised to the range of %d\n", n, a) }
	:: d_step { can_raise(a, n) ->
		raise(a, n); vote(a, n) = unconfirmed(a);
		printf("node %d is raised to the range of %d, and its answer is lost\n", n, a) }
	:: d_step { can_raise(a, n) ->
		vote(a, n) = unconfirmed(a);
		printf("node %d is not raised to the range of %d, and does not answer\n", n, a) }
	:: d_step { stage[a] == asking && wins(a, n) -> believe(a, n) }
	/* Renewals by a majority, and the ends of leases. */
	:: d_step { stage[a] == holding && renewable(a, next(n)) && renewable(a, next(n + 1)) ->
		key[next(n)] = a; key[next(n + 1)] = a;
		fresh[a] = 7 - bit(n); before[a] = 0;
		printf("%d renews the lock, at the nodes %d and %d\n", a, next(n), next(n + 1)) }
	:: d_step { key[n] == a && may_end(a, n) -> key[n] = 0; printf("the lease of %d ends at node %d\n", a, n) }
	:: done -> break
	od
}

proctype Attempt(byte a) {
	do
	:: d_step { stage[a] == idle && !done -> stage[a] = asking; printf("%d asks\n", a) }
	:: d_step { stage[a] != idle -> end(a); printf("%d unlocks, or its time is over\n", a) }
	:: done -> break
	od
}

proctype Node(byte n) {
	do
	:: d_step { key[n] == OVER -> key[n] = 0; printf("node %d has a lock no more whose holder is gone\n", n) }
	:: d_step { restarts < RESTARTS && !done ->
		restarts++; key[n] = 0; counter[n] = 0; clock[n] = high; young[n] = true;
		for (c : 1 .. 2) {
			fresh[c] = fresh[c] & (7 - bit(n));
			if :: stage[c] != idle -> before[c] = before[c] | bit(n) :: else fi
		}
		c = 0; printf("node %d is restarted, and has forgotten everything\n", n) }
	:: d_step { young[n] && old_enough(n) ->
		young[n] = false;
#ifndef NO_CLOCK
		counter[n] = clock[n];
#endif
		clock[n] = 0; printf("node %d has its vote again\n", n) }
	:: done -> break
	od
}

init {
	atomic {
		byte a, n;
		for (a : 1 .. 2) {
			stage[a] = idle;
			run Attempt(3 - a);
			for (n : 0 .. NODES - 1) { run AtNode(3 - a, NODES - 1 - n) }
		}
		for (n : 0 .. NODES - 1) { run Node(NODES - 1 - n) }
		a = 0; n = 0
	}
	d_step { stage[1] == idle && stage[2] == idle && restarts == 0 && high == 0 && asked[1] == 0 -> done = true }
}
