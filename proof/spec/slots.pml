/*
 * Slots: a lock that SLOTS holders may have at once, each with a slot of its own, and a guard at
 * what belongs to the slot.
 *
 * As in shared.pml, whoever was granted a slot once may act at any time afterwards, for ever.
 * Its Unlock, too, may arrive at any time, and long after its lease has ended. It may also die
 * and never unlock. Checked:
 *
 *   at most SLOTS holders have a lease that has not ended, and at most one of them each slot;
 *   a slot's holders have rising numbers;
 *   a dead holder's slot comes back: nobody waits for ever (Spin looks for states from which
 *   nothing goes on);
 *   A  the holders of one slot never interleave at what belongs to it;
 *   B  a holder whose lease has not ended is never refused.
 *
 * Wrong, and kept:
 *
 *   NO_GUARD      A fails
 *   COMMON_MARK   B fails: one guard over what all slots share. A holder's number says nothing
 *                 about a holder of another slot: both hold at once
 *   BARE_UNLOCK   an Unlock that does not compare frees the slot of whoever has it now
 *   BARE_COUNTER  a count of permits without their holders: a dead holder's permit is gone for
 *                 ever, because no lease of it can end
 *
 * Bounds: SLOTS slots, which are two here, and at most GRANTS grants, any number of acts in any
 * order. What is done in one slot moves nothing in another but which one is the smallest free. A
 * break within a slot has three holders at most: one whose late Unlock frees it, one that has it,
 * one that gets it. Four are checked.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef GRANTS
#define GRANTS 4
#endif

/* The server: who has which slot. 0 is nobody. */
byte holder[SLOTS];
byte last;

/* What each holder was told. */
byte slot[GRANTS + 1];

/* The guard's marks, one for each slot's resource. */
byte mark[SLOTS];

/* What nobody in the model knows. */
bool leased[GRANTS + 1]; /* granted, and neither unlocked nor ended by time */
byte leases;
byte newest[SLOTS]; /* the greatest number that had the slot */
bool acted[GRANTS + 1];
bool displaced[GRANTS + 1]; /* has acted; then another holder of its slot acted */
bool interleaved, refused_a_live_holder, too_many_holders, numbers_go_back;
byte s, u; /* count, and are 0 between two steps */

#ifdef COMMON_MARK
#define resource(t) 0
#else
#define resource(t) slot[t]
#endif

#ifdef NO_GUARD
#define accepted(t) true
#else
#define accepted(t) (t >= mark[resource(t)])
#endif

#ifdef BARE_COUNTER
byte taken;
#define free (taken < SLOTS)
#define has(t) false /* it knows a number, and nobody */
#else
#define free (holder[0] == 0 || holder[SLOTS - 1] == 0)
#define has(t) (holder[slot[t]] == t)
#endif

inline grant(t) {
	s = 0;
#ifdef BARE_COUNTER
	taken++;
	do :: s < SLOTS - 1 && leased[newest[s]] -> s++ :: else -> break od;
#else
	do :: holder[s] != 0 -> s++ :: else -> break od; /* the smallest free one */
	holder[s] = t;
#endif
	printf("holder %d is granted slot %d\n", t, s);
	numbers_go_back = t <= newest[s];
	assert(!numbers_go_back);
	too_many_holders = leased[newest[s]] || leases == SLOTS;
	assert(!too_many_holders);
	slot[t] = s; newest[s] = t; last = t; leased[t] = true; leases++;
	s = 0
}

/* over: the holder's lease is over, by time or by its Unlock. */
inline over(t) {
	if
	:: leased[t] -> leased[t] = false; leases--
	:: else
	fi
}

/* freed: the server takes the slot back from the holder that had it. */
inline freed(t) {
#if defined(BARE_COUNTER)
	taken--
#elif defined(BARE_UNLOCK)
	holder[slot[t]] = 0
#else
	if
	:: has(t) -> holder[slot[t]] = 0
	:: else /* somebody else has it now, or nobody: nothing is touched */
	fi
#endif
}

inline act(t) {
	if
	:: accepted(t) ->
		printf("holder %d acts on slot %d\n", t, slot[t]);
		mark[resource(t)] = t;
		interleaved = displaced[t];
		assert(!interleaved);
		acted[t] = true;
		for (u : 1 .. GRANTS) {
			if
			:: u != t && acted[u] && slot[u] == slot[t] -> displaced[u] = true
			:: else
			fi
		}
		u = 0
	:: !accepted(t) ->
		printf("holder %d is refused on slot %d\n", t, slot[t]);
		refused_a_live_holder = leased[t];
		assert(!refused_a_live_holder)
	fi
}

proctype Holder(byte t) {
	bool asked; /* its Unlock has been sent: it sends one */
	d_step { last + 1 == t && free -> grant(t) };
	do
	:: d_step { act(t) }
	:: d_step { has(t) -> over(t); holder[slot[t]] = 0; printf("the lease of holder %d ends\n", t) }
	:: d_step { !asked -> asked = true; over(t); freed(t); printf("the Unlock of holder %d arrives\n", t) }
	:: d_step { !has(t) -> printf("holder %d is dead\n", t) } -> break /* or it just never acts again */
	od
}

init {
	atomic {
		byte t;
		for (t : 1 .. GRANTS) { run Holder(t) }
	}
}
