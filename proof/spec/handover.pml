/*
 * A hand-over in one trip: a release grants the lock to the first waiter for a short time, and the waiter believes the word.
 *
 * (An experiment. In the code a release reserves the lock, and the waiter asks: queue.pml.)
 *
 * Whoever finds the lock taken has a place in the queue, and an answer with the server's time in it. A release draws the first
 * waiter's tokens, makes it the owner for the claim time, and sends word with the server's time of the grant. The waiter
 * knows when it sent the question that was answered. So the grant came, by its own clock, no earlier than
 *
 *   Since = send of the question + (time of the grant - time of the answer) x (1 - drift)
 *
 * and it believes for the claim time from there, minus drift. It confirms at once by a renewal, which starts a whole TTL. Where it
 * cannot believe the word, it asks.
 *
 * One attempt is looked at, and begins again for ever. All others are one: they take a free lock, wait for one that is not, renew
 * and release it, at any time. The lock is theirs from the moment when the server says so until it says otherwise, so whoever believes meanwhile
 * is a second holder. A word may be lost, and may come at any later time: beside a question that is under way, after the
 * grant has ended, after its holder has unlocked. The attempt may give up, or do nothing more at any point: that is how
 * one that is paused, or dead, looks to everybody else. The server may lose all it has, once. Time passes in whole steps, as
 * in lease.pml: at most once in a TTL a step passes for the server alone, and so much slower may the attempt's clock be. Checked:
 *
 *   two_holders            while the attempt believes, the lock is nobody else's, unless the server has lost the data of its grant
 *   left_behind            once a release or a clean-up is confirmed, the lock is the attempt's no more, and never will be, unless
 *                          the server has lost the mark
 *   free_and_nobody_knows  when a clean-up has removed a grant, and the lock is free, nobody waits
 *
 * Right: FORMULA. Wrong, and kept:
 *
 *   FROM_RECEIPT  two_holders: the belief counts from the receipt of the word
 *   NO_DRIFT      two_holders: there is no drift in the formula, and the clock is a little slower during the wait
 *   WHOLE_TTL     two_holders: the belief lasts for a TTL, where the claim time is shorter
 *   OLD_WORD      two_holders: the word of a grant that came before the answer is believed
 *   WORD_TWICE    two_holders: a word counts a second time, when the grant was given back
 *   TAKEN_BACK    two_holders: a server that takes the waiter for dead gives its grant to another one
 *   CROSSED       left_behind: a word is believed while a question is under way, of which the release leaves no mark
 *   KEPT_BACK     free_and_nobody_knows: a waiter that gives up removes its grant, and passes it on to nobody
 *
 * Assumed: a mark lasts for as long as any request is on its way, and the server's clock does not jump.
 *
 * Bounds: a TTL of TTL steps, which are four, and a claim time of CLAIM, which are three: one for the drift of the belief, one for that of the
 * wait, and one in which the word is believed. An answer that is older than LIMIT steps is not counted from.
 */
#ifndef TTL
#define TTL 4
#endif
#ifndef CLAIM
#define CLAIM 3
#endif
#ifndef LIMIT
#define LIMIT 6
#endif
#define DRIFT 1

/* The server. */
mtype = { nobody, ours, theirs };
mtype owner = nobody;
byte left;           /* of its lease */
bool queued, marked; /* the attempt has a place; its requests are refused */
bool others_wait;
bool lost;           /* the data, at some time */

/* What is on its way: a question, or its answer; a word; the renewal that confirms, or its answer; a release. */
mtype = { yes, no, sent, none };
mtype asks = none, confirms = none;
bool word, releases;

/* The attempt. */
mtype = { gone, leaving, holding, waiting, asking, idle };
mtype stage = idle;
byte validity;
byte age;          /* since it sent the question, or the renewal, that is under way, by its clock */
byte base = LIMIT; /* since it sent the question whose answer it had last; LIMIT: too long ago, or never */

/* Differences of the server's times, which messages carry: so long ago was a question answered, was the last one answered that was heard
   of, and was the lock granted of which the word tells. */
byte answered, heard = LIMIT, granted;

/* What nobody in the model knows. */
byte steady;      /* so many steps until one may pass for the server alone */
bool before_loss; /* the grant that is believed, or told of, is of the time before the data was lost */
bool over;
bool two_holders, left_behind, free_and_nobody_knows;

#define more(x) (x < LIMIT -> x + 1 : LIMIT)
#define rest_of(d, ago) (ago + DRIFT < d -> d - DRIFT - ago : 0)

#define wait (heard - granted) /* from the answer to the grant, by the server's clock */
#ifdef NO_DRIFT
#define shortest wait
#else
#define shortest (wait > 0 -> wait - (wait + TTL - 1) / TTL : 0)
#endif
#ifdef FROM_RECEIPT
#define since 0
#else
#define since (granted <= heard && base > shortest -> base - shortest : 0)
#endif
#ifdef WHOLE_TTL
#define BELIEF TTL
#else
#define BELIEF CLAIM
#endif

#if defined(CROSSED)
#define may_believe (stage == waiting || stage == asking)
#elif defined(WORD_TWICE)
#define may_believe (stage == waiting || stage == leaving && !releases)
#else
#define may_believe (stage == waiting)
#endif
#ifdef OLD_WORD
#define later true
#else
#define later (granted <= heard)
#endif
#define believable (may_believe && base < LIMIT && heard < LIMIT && granted < LIMIT && later && rest_of(BELIEF, since) > 0)

inline look() {
	two_holders = stage == holding && owner == theirs && !before_loss;
	assert(!two_holders)
}

inline forget() {
#ifndef WORD_TWICE
	base = LIMIT; heard = LIMIT
#endif
	skip
}

inline leave() {
	stage = leaving; validity = 0; age = 0;
	forget();
	if :: asks != sent -> asks = none; answered = 0 :: else fi;
	if :: confirms != sent -> confirms = none :: else fi
}

/* pass: the lock is free, and goes to whoever waits. The attempt's place is the first, or theirs is. */
inline pass() {
	owner = nobody; left = 0;
	if
	:: queued ->
		owner = ours; left = CLAIM; queued = false;
		word = true; granted = 0; before_loss = false;
		printf("the server grants it the lock, and sends word\n")
	:: others_wait -> owner = theirs; left = TTL; others_wait = false; printf("the server grants others the lock\n")
	:: !queued && !others_wait
	fi
}

inline arrive() {
	if
	:: owner == ours -> left = TTL; asks = yes; printf("its question finds the grant\n")
	:: owner == nobody && !marked ->
		owner = ours; left = TTL; queued = false; asks = yes; before_loss = false;
		printf("the server grants it the lock\n");
		left_behind = stage == gone && !lost;
		assert(!left_behind)
	:: owner == theirs && !marked -> queued = true; asks = no; answered = 0; printf("it has a place\n")
	:: owner != ours && marked -> asks = none; printf("its question is refused\n")
	fi;
	if :: stage != asking -> asks = none :: else fi
}

inline hear_word() {
	if
	:: believable ->
		printf("it believes the word\n");
		validity = rest_of(BELIEF, since); stage = holding;
		confirms = sent; age = 0;
		forget();
		look()
	:: else -> printf("the word says nothing to it\n")
	fi;
#ifndef WORD_TWICE
	word = false; granted = 0
#endif
	skip
}

inline hear_answer() {
	if
	:: asks == yes ->
		validity = rest_of(TTL, age); forget();
		if
		:: validity > 0 -> stage = holding; printf("it hears of its grant\n"); look()
		:: else -> printf("it hears of its grant too late\n"); leave()
		fi
	:: asks == no -> stage = waiting; base = age; heard = answered; printf("it waits\n")
	fi;
	asks = none; age = 0; answered = 0
}

inline release() {
	releases = false;
	printf("its release arrives\n");
#ifndef CROSSED
	marked = marked || asks == sent;
#endif
	if :: owner == ours -> pass() :: else fi
}

inline withdraw() {
	printf("its clean-up arrives\n");
	marked = marked || asks == sent; queued = false;
	if
	:: owner == ours ->
#ifdef KEPT_BACK
		owner = nobody; left = 0;
#else
		pass();
#endif
		free_and_nobody_knows = owner == nobody && others_wait;
		assert(!free_and_nobody_knows)
	:: else
	fi
}

inline confirmed() {
	stage = gone;
	left_behind = owner == ours && !lost;
	assert(!left_behind)
}

inline tick() {
	if
	:: left > 1 -> left--
	:: left == 1 -> left = 0; owner = nobody; printf("a lease ends\n")
	:: left == 0
	fi;
	answered = (asks == no -> more(answered) : 0);
	heard = (base < LIMIT -> more(heard) : LIMIT);
	granted = (word -> more(granted) : 0)
}

inline tick_clock() {
	age = (stage == asking || confirms != none && stage == holding -> more(age) : 0);
	base = more(base);
	if
	:: stage == holding && validity == 1 -> printf("it loses the lock, by its clock\n"); leave()
	:: stage == holding && validity > 1 -> validity--
	:: stage != holding
	fi
}

active proctype Attempt() {
	do
	:: d_step { stage == idle && !over -> stage = asking; asks = sent; age = 0; base = LIMIT; heard = LIMIT; printf("it asks\n") }
	:: d_step { stage == waiting -> stage = asking; asks = sent; age = 0; printf("it asks again\n") }
	:: d_step { asks == sent -> arrive() }
	:: d_step { stage == asking && (asks == yes || asks == no) -> hear_answer() }
	:: d_step { stage == asking && asks == none -> asks = sent; age = 0; printf("it asks once more\n") }
	:: d_step { asks == yes || asks == no -> asks = none; answered = 0 }
	:: d_step { word -> hear_word() }
	:: d_step { word -> word = false; granted = 0 }
	:: d_step { confirms == sent ->
		if :: owner == ours -> left = TTL; confirms = yes :: else -> confirms = no fi;
		printf("its renewal arrives\n");
		if :: stage != holding -> confirms = none :: else fi }
	:: d_step { stage == holding && confirms == yes ->
		validity = (rest_of(TTL, age) > validity -> rest_of(TTL, age) : validity);
		confirms = none; age = 0; printf("it hears that its lease is renewed\n") }
	:: d_step { stage == holding && confirms == no -> printf("it hears that it has lost the lock\n"); leave() }
	:: d_step { stage == holding -> printf("it unlocks\n"); releases = true; leave() }
	:: d_step { stage == waiting || stage == asking -> printf("it gives up\n"); leave() }
	:: d_step { releases -> release(); confirmed() }
	:: d_step { releases -> release() }
	:: d_step { stage == leaving && !releases -> withdraw() }
	:: d_step { stage == leaving && !releases -> withdraw(); confirmed() }
	:: d_step { stage == gone && asks == none && confirms == none && !word -> stage = idle; marked = false }
	:: d_step { stage == idle -> over = true } -> break
	od
}

active proctype World() {
	do
	:: d_step { owner == nobody -> owner = theirs; left = TTL; printf("others take the lock\n"); look() }
	:: d_step { owner == ours && !others_wait -> others_wait = true; printf("others wait\n") }
	:: d_step { owner == theirs && left < TTL -> left = TTL; printf("others renew\n") }
	:: d_step { owner == theirs -> printf("others release the lock\n"); pass(); look() }
	:: d_step { printf("time passes\n"); tick(); tick_clock(); steady = (steady > 0 -> steady - 1 : 0) }
	:: d_step { steady == 0 -> printf("time passes for the server alone\n"); tick(); steady = TTL - 1 }
	:: d_step { !lost -> printf("the server loses its data\n"); lost = true; before_loss = true; owner = nobody; left = 0; queued = false; marked = false; others_wait = false }
#ifdef TAKEN_BACK
	:: d_step { owner == ours && others_wait -> printf("the server takes it for dead\n"); pass(); look() }
#endif
	:: over -> break
	od
}
