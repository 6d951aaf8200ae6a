/*
 * Readers, writers, and a guard at what they lock.
 *
 * A lease ends without its holder's knowledge: the holder may be stopped, or its write may be
 * under way. So this model has no belief at all. Whoever was granted the lock once may read or
 * write at any time afterwards, for ever, after its Unlock as well. What holds here holds for
 * every client, however wrong its clock is.
 *
 * The server is sound: a writer is granted the lock when nobody holds it, a reader when no
 * writer does, and grants have rising numbers. Two things are checked:
 *
 *   A  holders that exclude each other never interleave at the storage: if one of them acts, and
 *      then another one acts, the first never acts again;
 *   B  a holder that the server still has is never refused.
 *
 * A alone is easy, a guard that refuses everybody has it; so is B alone, with no guard at all.
 * The guard with two marks has both (fencing.SharedGuard). The other guards are kept because
 * they look right:
 *
 *   NO_GUARD      A fails: the server alone cannot stop a late write
 *   ONE_MARK      B fails: a reader raises the mark, and an earlier reader still holds the lock
 *   WRITERS_MARK  A fails: readers leave no mark, so a late write comes between two reads
 *   DRAWN_EARLY   B fails: two marks, but a number is drawn when the lock is asked for, so a
 *                 holder can come after one whose number is greater
 *
 * Bounds: at most GRANTS grants, any number of reads and writes in any order. Two grants show
 * each break that there is. Marks only rise, and a holder only keeps others out. So take out of a
 * history all that is done by anybody but the two holders that interleave, or but the one that is
 * refused and the one that raised the mark: the rest could still have happened, and still breaks.
 * Five are checked.
 */
#ifndef GRANTS
#define GRANTS 5
#endif

mtype = { reader, writer };

/* The server. A holder is known by its number: who it is does not matter. */
mtype kind[GRANTS + 1];
bool held[GRANTS + 1];
byte readers, writers; /* how many holders it has */
byte last;             /* the number of the last grant */

/* The guard's marks: the greatest number that wrote, and that read. */
byte write_mark, read_mark;

/* What nobody in the model knows: the two properties look at it. */
bool acted[GRANTS + 1];
bool displaced[GRANTS + 1]; /* has acted; then one that it excludes, or that excludes it, acted */
bool interleaved, refused_a_live_holder;
byte u; /* counts, and is 0 between two steps */

#ifdef DRAWN_EARLY
#define in_order(t) true
#else
#define in_order(t) (last + 1 == t)
#endif

#if defined(NO_GUARD)
#define accepted(t) true
#elif defined(ONE_MARK) || defined(WRITERS_MARK)
#define accepted(t) (t >= write_mark)
#else
#define accepted(t) (t >= write_mark && (kind[t] == reader || t >= read_mark))
#endif

inline remember(t) {
	if
	:: kind[t] == writer -> write_mark = t
#if defined(ONE_MARK)
	:: kind[t] == reader -> write_mark = t
#elif defined(WRITERS_MARK)
	:: kind[t] == reader
#else
	:: kind[t] == reader -> if :: t > read_mark -> read_mark = t :: t <= read_mark fi
#endif
	fi
}

/* act: the storage takes one read or write, in one step with the guard. */
inline act(t) {
	if
	:: accepted(t) ->
		printf("%e %d acts\n", kind[t], t);
		remember(t);
		interleaved = displaced[t];
		assert(!interleaved);
		acted[t] = true;
		for (u : 1 .. GRANTS) {
			if
			:: u != t && acted[u] && (kind[u] == writer || kind[t] == writer) -> displaced[u] = true
			:: else
			fi
		}
		u = 0
	:: !accepted(t) ->
		printf("%e %d is refused\n", kind[t], t);
		refused_a_live_holder = held[t];
		assert(!refused_a_live_holder)
	fi
}

/* gone: the server has the holder no more. Nobody tells the holder. */
inline gone(t) {
	held[t] = false;
	if
	:: kind[t] == reader -> readers--
	:: kind[t] == writer -> writers--
	fi
}

proctype Holder(byte t) {
	if
	:: d_step { in_order(t) && writers == 0 ->
		kind[t] = reader; readers++; held[t] = true; last = t;
		printf("reader %d is granted the lock\n", t) }
	:: d_step { in_order(t) && writers == 0 && readers == 0 ->
		kind[t] = writer; writers++; held[t] = true; last = t;
		printf("writer %d is granted the lock\n", t) }
	fi;
	do
	:: d_step { act(t) }
	:: d_step { held[t] -> gone(t); printf("the lease of %e %d ends\n", kind[t], t) }
	:: d_step { !held[t] -> skip } -> break /* it never acts again */
	od
}

init {
	atomic {
		byte t;
		for (t : 1 .. GRANTS) { run Holder(t) }
	}
}
