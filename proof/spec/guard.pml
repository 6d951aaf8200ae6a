/*
 * A holder that is paused, and the guard that refuses what it does afterwards.
 *
 * A holder looks at its clock, believes that it has the lock, and acts. Between the look and the
 * act it may be paused for any length of time. So whoever was granted the lock once may begin to
 * work, and write, at any time afterwards, for ever; what it believes is not looked at. The server
 * grants the lock when nobody has it. A lease ends at any time: so this holds whatever the clocks
 * do. Checked:
 *
 *   a_late_write           once a holder has begun to work, which may be to read, or has written,
 *                          no write of an earlier holder is accepted
 *   refused_a_live_holder  a holder that the server still has is never refused
 *   numbers_go_back        tokens have the order of grants
 *
 * Right:
 *
 *   CLAIMED    the guard compares and records in one step, and a holder has it record its token
 *              before it begins to work (Do with WithGuard)
 *   UNCLAIMED  nobody claims anything: writes alone are in the order of their tokens, and what a
 *              holder has read may change until it writes
 *   PROMPT     there is no guard, and no holder is paused: it acts only while the server has it. So
 *              it is where PromptHolder holds and, as lease.pml shows, SteadyClocks
 *
 * Wrong, and kept:
 *
 *   PAUSED       a_late_write: no guard, and a holder that is paused between its look and its write
 *   NO_CLAIM     a_late_write: the guard learns of a holder by its first write, and until then a
 *                stale write slips in. It is what UNCLAIMED does not promise
 *   NO_RECORD    a_late_write: the guard compares, and records nothing
 *   SMALLER      a_late_write: the guard also accepts the token before the greatest
 *   NOT_EQUAL    refused_a_live_holder: the guard accepts only greater tokens, and a holder has one
 *                for its claim and all of its writes
 *   DRAWN_EARLY  numbers_go_back: a token is drawn when the lock is asked for, where exclusion is
 *                not certain yet. How a guard then refuses a live holder is in shared.pml
 *
 * It is about:
 *
 *   `do.go`: `do`, `claim`, `check`
 *   `fencing/fencing.go`: `Check`, `Write`, `enter`
 *   `internal/redisnode/lua/grant.lua`: `grant`
 *
 * Bounds: at most GRANTS grants, any number of writes in any order. Two grants show each break
 * that there is. Marks only rise: so take out of a history all that is done by anybody but the
 * late writer, or the one that is refused, and the one that came between. Five are checked.
 */
#ifndef GRANTS
#define GRANTS 5
#endif

/* The server. A holder is known by its token. */
byte owner; /* 0 is nobody */
byte last;  /* the token of the latest grant */

byte mark;  /* of the guard: the greatest token seen */

/* What nobody in the model knows. */
byte begun; /* the greatest token of those who have begun to work, or written */
bool a_late_write, refused_a_live_holder, numbers_go_back;

#ifdef DRAWN_EARLY
#define in_order(t) true
#else
#define in_order(t) (last + 1 == t)
#endif

#if defined(PROMPT) || defined(PAUSED)
#define accepted(t) true
#elif defined(NOT_EQUAL)
#define accepted(t) (t > mark)
#elif defined(SMALLER)
#define accepted(t) (t + 1 >= mark)
#else
#define accepted(t) (t >= mark)
#endif

#ifdef NO_RECORD
#define record(t)
#else
#define record(t) raise(mark, t)
#endif

#ifdef PROMPT
#define acts(t) (owner == t)
#else
#define acts(t) true
#endif

inline grant(t) {
	printf("%d is granted the lock\n", t);
	numbers_go_back = t < last;
	assert(!numbers_go_back);
	owner = t; last = t
}

inline raise(what, t) {
	if :: t > what -> what = t :: else fi
}

inline refuse(t) {
	printf("%d is refused\n", t);
	refused_a_live_holder = owner == t;
	assert(!refused_a_live_holder)
}

/* begin: a claim, where there is one, and then the holder's work. */
inline begin(t) {
#if defined(UNCLAIMED)
	works = true;
	printf("%d begins to work\n", t)
#elif defined(NO_CLAIM)
	works = true; raise(begun, t);
	printf("%d begins to work\n", t)
#else
	if
	:: accepted(t) ->
		works = true; raise(begun, t); record(t);
		printf("%d begins to work\n", t)
	:: else -> refuse(t)
	fi
#endif
}

inline write(t) {
	if
	:: accepted(t) ->
		printf("%d writes\n", t);
		a_late_write = t < begun;
		assert(!a_late_write);
		raise(begun, t); record(t)
	:: else -> refuse(t)
	fi
}

proctype Holder(byte t) {
	bool works;
	d_step { owner == 0 && in_order(t) -> grant(t) };
	do
	:: d_step { !works && acts(t) -> begin(t) }
	:: d_step { works && acts(t) -> write(t) }
	:: d_step { owner == t -> owner = 0; printf("the lease of %d ends\n", t) }
	:: owner != t -> break /* it never acts again */
	od
}

init {
	atomic {
		byte t;
		for (t : 1 .. GRANTS) { run Holder(GRANTS + 1 - t) }
	}
}
