/*
 * The queue in the store: a lock goes from process to process by reservation, word and question.
 *
 * So it is on Redis (the scripts acquire, release and withdraw of internal/redisnode, and what
 * they share: pass, tell, standBy) and in PostgreSQL (lockstile_acquire, lockstile_release,
 * lockstile_pass, lockstile_wait); internal/mailbox has the side of the process. Whoever finds
 * the lock taken has a place in a queue. A release reserves the lock for the first in it, and
 * sends word; the second is told to stand by. The reservation has an end of its own. The waiter
 * asks, and is granted what is reserved for it.
 *
 * A word may be lost, may come at any later time, and may come twice. So may the answer to a
 * question be lost: then the waiter asks again. A process may die at any time, as holder or
 * waiter; the store may notice (its connection is gone) or not. A waiter may give up: then it
 * withdraws what it has left. A process that is paused takes no step for a while, and any of them
 * may, for steps are taken in any order.
 *
 * Assumed, and shown elsewhere: each script or function is one step, and a lease ends only when
 * its holder believes in it no more (lease.pml). A waiter looks by itself when no word comes; when
 * depends on the end of the lease, or of the reservation, that it was told of. Here it may look
 * whenever there is something to find; a look that finds nothing changes nothing. Not in the
 * model: shared locks and slots, where a release reserves for several; WithMinHold; clients of
 * other libraries; subscriptions that break, after which everybody looks; a question that arrives
 * after its withdrawal, which is refused.
 *
 * Checked in every state:
 *
 *   two_holders            at most one process believes that it has the lock
 *   free_and_nobody_knows  when a script has run, and the lock is free and not reserved, nobody
 *                          waits
 *   overtaken              nobody is granted the lock before a live waiter that came earlier, unless
 *                          that one has let end what it had: a reservation, or a grant that it
 *                          did not hear of
 *   invalid end state      nobody waits for ever: whoever waits is granted the lock, though words
 *                          are lost and others die
 *
 * Wrong, and kept:
 *
 *   BELIEVE_WORD  a word is taken for a grant
 *   NO_END        a reservation has no end: a dead waiter's keeps all others out
 *   NO_LOOK       who hears no word sleeps for ever, also when it was lost, or when nobody sent it
 *                 because the holder has died
 *   NO_PASS       who withdraws drops the reservation that it has, and passes it on to nobody
 *   NEWCOMER      one that has just come takes a lock that is reserved for another
 *
 * Bounds: PROCESSES processes, ARRIVALS calls, DEATHS of them end in death and GIVE_UPS with a
 * withdrawal. Three processes are one that has the lock, the first that waits and one that comes
 * later; each break needs no more. They are alike, so process 1 makes the first call, and process
 * 3 does not make the second.
 */
#ifndef PROCESSES
#define PROCESSES 3
#endif
#ifndef ARRIVALS
#define ARRIVALS 4
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif

mtype = { idle, waits, granted, holds, gives_back, withdraws, dead };

/* The store. 0 is nobody. */
byte holder, reserved;
bool queued[PROCESSES + 1];
byte ticket[PROCESSES + 1]; /* of a waiter, from its first question on; it keeps it */
bool gone[PROCESSES + 1];   /* nobody listens there any more */
byte arrived;               /* the last ticket */
byte arrivals, deaths, give_ups;

mtype state[PROCESSES + 1] = idle;
bool word[PROCESSES + 1]; /* that the lock is reserved: one may still come */
bool stands_by[PROCESSES + 1]; /* was told that it is reserved for another one, and for how long */

/* What nobody in the model knows. */
bool late[PROCESSES + 1]; /* has let a reservation end, or a lease that it did not hear of */
bool two_holders, free_and_nobody_knows, overtaken;
byte i, first, believers; /* are 0 between two steps */

/* look_for_first: first is then the one with the lowest ticket of those who can be told. The
 * others are dropped. */
inline look_for_first() {
	first = 0;
	for (i : 1 .. PROCESSES) {
		if
		:: queued[i] && !gone[i] && (first == 0 || ticket[i] < ticket[first]) -> first = i
		:: queued[i] && gone[i] -> queued[i] = false
		:: else
		fi
	}
	i = 0
}

#define listens(i) (state[i] == waits || state[i] == granted)

/* pass: a lock that is free is reserved for the first in the queue. */
inline pass(mine) {
	if
	:: holder == 0 && reserved == 0 ->
		look_for_first();
		if
		:: first ->
			reserved = first; queued[first] = false;
			word[first] = first != mine && listens(first);
			printf("the store reserves the lock for process %d\n", first);
			look_for_first();
			if
			:: first && first != mine && listens(first) -> stands_by[first] = true
			:: else
			fi
		:: else
		fi;
		first = 0
	:: else
	fi
}

/* check: what must be so after a script. */
inline check() {
	look_for_first();
	free_and_nobody_knows = holder == 0 && reserved == 0 && first;
	assert(!free_and_nobody_knows);
	first = 0
}

inline grant() {
	for (i : 1 .. PROCESSES) {
		if
		:: i != me && state[i] == waits && (queued[i] || reserved == i) && !late[i] &&
			(ticket[me] == 0 || ticket[i] < ticket[me]) -> overtaken = true
		:: else
		fi
	}
	i = 0;
	assert(!overtaken);
	holder = me; reserved = 0; queued[me] = false; late[me] = false;
	state[me] = granted;
	printf("process %d asks, and the store grants it the lock\n", me)
}

inline ask() {
	if
	:: holder == 0 && reserved == 0 -> pass(me)
	:: else
	fi;
	if
	:: holder == me -> state[me] = granted /* the same grant again */
	:: holder == 0 && (reserved == me || reserved == 0) -> grant()
#ifdef NEWCOMER
	:: holder == 0 && reserved && reserved != me && ticket[me] == 0 -> grant()
#endif
	:: else ->
		if
		:: ticket[me] == 0 -> arrived++; ticket[me] = arrived
		:: else
		fi;
		queued[me] = true; state[me] = waits;
		printf("process %d asks, and has to wait\n", me)
	fi;
	check()
}

/* hears_nothing: words are for an attempt, and nobody waits for those of one that is over. */
inline hears_nothing() { word[me] = false; stands_by[me] = false }

/* believe: the process has the lock, for all that it knows. */
inline believe() {
	state[me] = holds; ticket[me] = 0; hears_nothing();
	for (i : 1 .. PROCESSES) {
		if
		:: state[i] == holds -> believers++
		:: else
		fi
	}
	i = 0;
	two_holders = believers > 1;
	assert(!two_holders);
	believers = 0
}

#ifdef NO_PASS
#define passes_on (reserved != me)
#else
#define passes_on true
#endif

/* leave: the store takes back whatever a process has. */
inline leave() {
	queued[me] = false; ticket[me] = 0; late[me] = false; state[me] = idle;
	if
	:: passes_on ->
		reserved = (reserved == me -> 0 : reserved);
		holder = (holder == me -> 0 : holder);
		pass(0)
	:: else -> reserved = 0
	fi;
	check()
}

active proctype Store() {
	do
	/* Ends by time: nobody hears of them. */
	:: d_step { holder && state[holder] != holds && state[holder] != granted ->
		printf("the lease of process %d ends\n", holder);
		late[holder] = true; holder = 0 }
#ifndef NO_END
	:: d_step { reserved ->
		printf("the reservation for process %d ends\n", reserved);
		late[reserved] = true; reserved = 0 }
#endif
	:: _nr_pr == 1 -> break
	od
}

#define may_find (holder == me || holder == 0 && (reserved == 0 || reserved == me))

active [PROCESSES] proctype Process() {
	byte me = _pid;
	do
	:: d_step { state[me] == idle && arrivals < ARRIVALS && arrivals >= me - 1 -> arrivals++; ask() }
	:: d_step { word[me] && state[me] == waits ->
#ifdef BELIEVE_WORD
		printf("process %d hears a word, and believes that it has the lock\n", me);
		believe()
#else
		printf("process %d hears a word\n", me);
		ask()
#endif
		}
	:: d_step { stands_by[me] && state[me] == waits && may_find -> stands_by[me] = false;
		printf("process %d has stood by\n", me);
		ask() }
	:: d_step { word[me] -> word[me] = false;
		printf("no word comes to process %d any more\n", me) }
	:: d_step { stands_by[me] -> stands_by[me] = false }
#ifndef NO_LOOK
	:: d_step { state[me] == waits && may_find ->
		printf("process %d looks by itself\n", me);
		ask() }
#endif
	:: d_step { state[me] == granted -> believe();
		printf("process %d hears that it has the lock\n", me) }
	:: d_step { state[me] == granted -> state[me] = waits;
		printf("process %d does not hear the answer\n", me) }
	:: d_step { state[me] == holds -> state[me] = gives_back;
		printf("process %d unlocks\n", me) }
	:: d_step { (state[me] == waits || state[me] == granted) && give_ups < GIVE_UPS -> give_ups++; state[me] = withdraws; hears_nothing();
		printf("process %d gives up\n", me) }
	:: d_step { state[me] == gives_back || state[me] == withdraws ->
		printf("what process %d had is taken back\n", me);
		leave() }
	:: d_step { state[me] != idle && deaths < DEATHS -> deaths++; state[me] = dead; gone[me] = true; hears_nothing();
		printf("process %d dies\n", me) }
	:: d_step { state[me] != idle && deaths < DEATHS -> deaths++; state[me] = dead; hears_nothing();
		printf("process %d dies, and the store does not notice\n", me) }
	:: d_step { state[me] == dead || state[me] == idle && arrivals == ARRIVALS } -> break
	od
}
