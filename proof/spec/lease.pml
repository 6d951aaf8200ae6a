/*
 * A lease: granted, renewed, given back, cleaned up, where messages are late or lost, clocks
 * differ, and holders die.
 *
 * An attempt asks for the lock, and asks again if it hears nothing. Once it has heard of its grant
 * it holds the lock, and may renew it, unlock it, or lose it. It may also do nothing more at any
 * point: that is how one that is paused, or dead, looks to everybody else. When nothing of
 * it is left it begins again with another value, for ever. A request arrives at any time after it
 * was sent, or never, and so does the answer to the lock's request or to a renewal. The answer to
 * a release or a clean-up comes at once or never; a clean-up is repeated until it has come.
 *
 * Time passes in whole steps. In each, the server's lease gets shorter by the server's clock, and
 * a holder's validity by the holder's own. At most once in a TTL a step passes for the server
 * alone: so much slower may a holder's clock be, and the drift allowance is as long. (One that is
 * faster ends validity sooner. So does an Unlock.) A holder that is paused does not move its clock:
 * it believes until a clock says otherwise, and what it does without looking is in guard.pml.
 * Checked:
 *
 *   two_holders         at most one attempt believes that it has the lock
 *   left_behind         once a release or a clean-up is confirmed, the lock is the attempt's no
 *                       more, and never will be
 *   outlives_its_lease  a lock is free one TTL after its holder's last request arrived: nobody
 *                       has it for longer after an outcome that is unknown
 *
 * LEASE has all three. Each of the others leaves out one rule, and fails:
 *
 *   CLOCK_STANDS      two_holders: a holder's clock stands still at will, as one that does not run
 *                     while the machine is suspended
 *   FROM_RECEIPT      two_holders: validity counts from the receipt of the grant
 *   RENEWED_RECEIPT   two_holders: it counts from the receipt of a renewal's answer
 *   NO_DRIFT          two_holders: there is no drift allowance, and a clock is a little slower
 *   NO_TIMER          two_holders: silence is not loss, so the holder believes until it is told
 *   NOT_ANEW          two_holders: a request that is repeated hears of the old grant, whose lease
 *                     does not begin anew; the attempt counts from the repetition
 *   UNLOCKS_LATE      two_holders: belief ends when a release was answered, not before it is sent
 *   BARE_RELEASE      two_holders: a release that does not compare frees the next holder's lock
 *   BARE_RENEWAL      outlives_its_lease: a renewal that does not compare lengthens the lease of
 *                     the next holder, who may be dead
 *   NO_MARK           left_behind: a clean-up leaves no mark that refuses a request which is still
 *                     on its way: it takes the lock for nobody
 *   UNMARKED_RELEASE  left_behind: the same of a release, where a request was sent twice
 *
 * It is about:
 *
 *   `driver/renewed.go`: `extend`, `left`, `expire`, `lose`
 *   `driver/renewal.go`: `tick`, `renew`, `settle`
 *   `driver/turn.go`: `beginLease`, `endTurn`, `Unlock`
 *   `driver/acquire.go`: `abandon`
 *   `driver/renewed.go`: `withdraw`; `driver/cleanup.go`: `Persist`
 *   `driver/request.go`: `Drift`, `Deadline`
 *   `internal/redisnode/attempt.go`: `Acquire`, `Release`, `Withdraw`, `remember`
 *   `internal/redisnode/lua/acquire.lua`, `internal/redisnode/lua/release.lua`,
 *   `internal/redisnode/lua/withdraw.lua`, `internal/redisnode/lua/renew.lua`
 *
 * Assumed: the server keeps what it has granted, and its clock does not jump. A mark lasts for as
 * long as any request is on its way (the code: a minute and a TTL).
 *
 * Bounds: ATTEMPTS attempts at a time, which are two, and any number one after another: one
 * whose message is late, and one that has the lock meanwhile. A third changes nothing that these
 * two do not: what is on its way compares before it touches anything. A TTL of TTL steps, which
 * are three: one for a message to be late by, one for the drift, and one in which it is held. Of
 * an attempt one request of a kind is on its way, and one more for the lock.
 */
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef TTL
#define TTL 3
#endif
#define DRIFT 1
#ifdef NO_DRIFT
#define VALIDITY TTL
#else
#define VALIDITY (TTL - DRIFT)
#endif
#define N (ATTEMPTS + 1)

/* The server. */
byte owner; /* 0 is nobody */
byte left;  /* of its lease */
bool marked[N];

/* What is on its way: a request, or its answer. */
mtype = { yes, no, sent, none };
mtype asks[N], renews[N];
bool again[N]; /* an earlier request for the lock */
bool releases[N];

/* The attempts. */
mtype = { gone, leaving, holding, asking, idle };
mtype stage[N];
byte age[N];      /* how long ago it sent the request whose answer it awaits, by its clock */
byte validity[N]; /* what is left of it, by its clock */

/* What nobody in the model knows. */
byte holders;
byte silent; /* how long ago the owner's last request arrived, by the server's clock */
byte steady; /* so many steps until one may pass for the server alone */
byte busy;   /* attempts that are not idle */
bool over;   /* nobody asks any more */
bool two_holders, left_behind, outlives_its_lease;
byte c;      /* counts, and is 0 between two steps */

#define since_sent(a) (age[a] < VALIDITY -> VALIDITY - age[a] : 0)
#ifdef FROM_RECEIPT
#define granted_validity(a) VALIDITY
#else
#define granted_validity(a) since_sent(a)
#endif
#ifdef RENEWED_RECEIPT
#define renewed_validity(a) VALIDITY
#else
#define renewed_validity(a) since_sent(a)
#endif

#ifdef BARE_RENEWAL
#define renewable(a) (owner != 0)
#else
#define renewable(a) (owner == a)
#endif
#ifdef BARE_RELEASE
#define releasable(a) (owner != 0)
#else
#define releasable(a) (owner == a)
#endif

#ifdef CLOCK_STANDS
#define may_differ true
#else
#define may_differ (steady == 0)
#endif

inline vacate() { owner = 0; left = 0; silent = 0 }

/* arrive: a request for the lock. If it is a repetition, it hears of the same grant. */
inline arrive(a) {
	if
	:: owner == a ->
#ifndef NOT_ANEW
		left = TTL; silent = 0;
#endif
		printf("a request of %d arrives again\n", a)
	:: owner == 0 && !marked[a] ->
		owner = a; left = TTL; silent = 0;
		printf("the server grants %d the lock\n", a);
		left_behind = stage[a] == gone;
		assert(!left_behind)
	:: else -> printf("a request of %d is refused\n", a)
	fi
}

inline ask(a) {
	if :: stage[a] == idle -> busy++ :: else -> again[a] = again[a] || asks[a] == sent fi;
	asks[a] = sent; age[a] = 0; stage[a] = asking;
	printf("%d asks for the lock\n", a)
}

inline end_belief(a) {
	if :: stage[a] == holding -> holders-- :: else fi;
	stage[a] = leaving; validity[a] = 0; age[a] = 0;
	if :: asks[a] == yes || asks[a] == no -> asks[a] = none :: else fi;
	if :: renews[a] == yes || renews[a] == no -> renews[a] = none :: else fi
}

inline hear_grant(a) {
	asks[a] = none;
	validity[a] = granted_validity(a);
	age[a] = 0;
	if
	:: validity[a] > 0 ->
		stage[a] = holding; holders++;
		printf("%d hears of it, and holds the lock\n", a);
		two_holders = holders > 1;
		assert(!two_holders)
	:: else -> printf("%d hears of it too late\n", a); end_belief(a)
	fi
}

/* may_arrive: a request for the lock is on its way, and the attempt awaits no answer to it. */
#define may_arrive(a) (again[a] || asks[a] == sent)

inline release(a) {
	releases[a] = false;
	printf("the release of %d arrives\n", a);
#ifndef UNMARKED_RELEASE
	marked[a] = may_arrive(a);
#endif
	if :: releasable(a) -> vacate() :: else fi
}

inline withdraw(a) {
	printf("the clean-up of %d arrives\n", a);
#ifndef NO_MARK
	marked[a] = may_arrive(a);
#endif
	if :: owner == a -> vacate() :: else fi
}

/* confirmed: nothing of the attempt is left in the server, as far as it knows. */
inline confirmed(a) {
	if :: stage[a] == holding -> end_belief(a) :: else fi;
	stage[a] = gone;
	left_behind = owner == a;
	assert(!left_behind)
}

inline tick() {
	if
	:: owner != 0 ->
		left--; silent++;
		if
		:: left == 0 -> printf("the lease of %d ends\n", owner); vacate()
		:: else
		fi
	:: else
	fi;
	outlives_its_lease = silent >= TTL;
	assert(!outlives_its_lease)
}

inline tick_clock(a) {
	if
	:: (asks[a] != none && stage[a] == asking || renews[a] != none && stage[a] == holding) && age[a] < VALIDITY -> age[a]++
	:: else
	fi;
#ifndef NO_TIMER
	if
	:: stage[a] == holding ->
		validity[a]--;
		if
		:: validity[a] == 0 -> printf("%d loses the lock, by its clock\n", a); end_belief(a)
		:: else
		fi
	:: else
	fi
#endif
}

#define can_ask(a) (stage[a] == idle && !over || stage[a] == asking && (asks[a] != sent || !again[a]))

proctype Attempt(byte a) {
	do
	/* The request for the lock, its answer, and what is lost. */
	:: d_step { can_ask(a) -> ask(a) }
	:: d_step { asks[a] == sent ->
		arrive(a); asks[a] = (stage[a] != asking -> none : (owner == a -> yes : no)) }
	:: d_step { again[a] -> again[a] = false; arrive(a) }
	:: d_step { asks[a] == yes -> hear_grant(a) }
	:: d_step { asks[a] != none -> asks[a] = none }
	/* Renewals. */
	:: d_step { stage[a] == holding && renews[a] == none ->
		renews[a] = sent; age[a] = 0; printf("%d renews\n", a) }
	:: d_step { renews[a] == sent ->
		if :: renewable(a) -> left = TTL :: else fi;
		if :: owner == a -> silent = 0 :: else fi;
		renews[a] = (stage[a] != holding -> none : (renewable(a) -> yes : no));
		printf("the renewal of %d arrives\n", a) }
	:: d_step { renews[a] == yes ->
		renews[a] = none;
		validity[a] = (renewed_validity(a) > validity[a] -> renewed_validity(a) : validity[a]);
		age[a] = 0;
		printf("%d hears that its lease is renewed\n", a) }
	:: d_step { renews[a] == no ->
		renews[a] = none; printf("%d hears that it has lost the lock\n", a); end_belief(a) }
	:: d_step { renews[a] != none -> renews[a] = none; age[a] = 0 }
	/* Its end. */
	:: d_step { stage[a] == asking -> printf("%d gives up\n", a); end_belief(a) }
	:: d_step { stage[a] == holding && !releases[a] ->
		printf("%d unlocks\n", a); releases[a] = true;
#ifndef UNLOCKS_LATE
		end_belief(a)
#endif
		}
	:: d_step { releases[a] -> release(a) }
	:: d_step { releases[a] && stage[a] != gone -> release(a); confirmed(a) }
	:: d_step { stage[a] == leaving -> withdraw(a) }
	:: d_step { stage[a] == leaving -> withdraw(a); confirmed(a) }
	/* It begins again. */
	:: d_step { stage[a] == gone && asks[a] == none && !again[a] && renews[a] == none && !releases[a] ->
		stage[a] = idle; marked[a] = false; busy-- }
	:: d_step { busy == 0 -> over = true } -> break
	od
}

active proctype Time() {
	do
	:: d_step {
		printf("time passes\n");
		tick();
		for (c : 1 .. ATTEMPTS) { tick_clock(c) }
		c = 0; steady = (steady > 0 -> steady - 1 : 0) }
	:: d_step { may_differ -> printf("time passes for the server alone\n"); tick(); steady = TTL - 1 }
	:: over -> break
	od
}

init {
	atomic {
		byte a;
		for (a : 1 .. ATTEMPTS) {
			stage[a] = idle; asks[a] = none; renews[a] = none;
			run Attempt(ATTEMPTS + 1 - a)
		}
	}
}
