/*
 * Has turns.pml follow a trace: what a test of the driver has written down of a run, one step a
 * line. The model takes a step that it shares with the trace only where the trace has it, and all
 * others (a request on its way, a call that gives up) as it likes. If it can come to the end of
 * the trace, the run was one of the model's, and Spin says that "the trace is a run" is violated.
 *
 *	     at  who       what              number
 *	 103000  store     granted_to_0      1         lease, to process 0
 *	 104000  process0  began             1         number of the turn
 *	 129000  process0  shared_for_25_ms  1         lease
 *	 131000  callers   unlocks           1         number: somebody calls Unlock
 *	 132000  process0  ended             1         number: Unlock has passed the lease on, or returns
 *	 132000  store     freed             1         lease
 *
 * lost is the end of a turn by its process's clock, told one of which the store has told it. Steps
 * of one source come in their order. Those of different sources at the same microsecond may come
 * in any.
 */
#define PROCESSES 2
#define BEFORE 2 /* Trace and Store are declared before the processes */
#define GRANTS 30000
#define RANGE 64
#define more_calls true
#define count_call skip
#define somebody_behind true
#define may_give_up true

#define store 2
#define callers 3
#define SOURCES 4

#define began 1
#define ended 2
#define lost 3
#define told 4
#define shared_for_25_ms 5
#define granted 6 /* and the process */
#define freed 8
#define unlocks 9

/* The next step of each source. */
int at[SOURCES];
byte what[SOURCES];
short about[SOURCES];
short taken[SOURCES];
byte source;
bool read_in, unlocking[PROCESSES], the_trace_is_a_run;

#define first(s) (read_in && at[s] <= at[0] && at[s] <= at[1] && at[s] <= at[2] && at[s] <= at[3])
#define by_process(w, n) (what[p] == w && about[p] == n && first(p))
#define by_store(w, n) (what[store] == w && about[store] == n && first(store))
#define may_end(p) unlocking[p]

inline taken_from_trace(s) {
	source = s;
	c_code { take(now.source); };
	source = 0
}

c_decl {
\#include <limits.h>
struct step { int at, what, about; char text[80]; };
static struct step steps[SOURCES][32000];
static int count[SOURCES], furthest[SOURCES], most; /* 1 more than the steps taken at the furthest */

static void show(int s)
{
	int i;
	for (i = 0; i < SOURCES; i++)
		if (furthest[i] < count[i] && steps[i][furthest[i]].at < steps[s][furthest[s]].at)
			return;
	if (furthest[s] < count[s])
		printf("the model cannot take: %s", steps[s][furthest[s]].text);
}

static void tell(void) { int s; for (s = 0; s < SOURCES; s++) show(s); }

static int find(const char **words, const char *word)
{
	int i;
	for (i = 0; words[i]; i++)
		if (!strcmp(words[i], word))
			return i;
	fprintf(stderr, "a trace has the word %s, which means nothing\n", word);
	exit(2);
}
};

c_code {
static const char *whos[] = { "process0", "process1", "store", "callers", 0 };
static const char *whats[] = { "", "began", "ended", "lost", "told", "shared_for_25_ms", "granted_to_0", "granted_to_1", "freed", "unlocks", 0 };

static void look(int s)
{
	struct step *next = &steps[s][now.taken[s]];
	int over = now.taken[s] >= count[s];
	now.at[s] = over ? INT_MAX : next->at;
	now.what[s] = over ? 0 : next->what;
	now.about[s] = over ? 0 : next->about;
}

static void take(int s)
{
	int i, sum = 1;
	now.taken[s]++;
	look(s);
	for (i = 0; i < SOURCES; i++) sum += now.taken[i];
	if (sum <= most) return;
	most = sum;
	for (i = 0; i < SOURCES; i++) furthest[i] = now.taken[i];
}

static void read_trace(void)
{
	char line[80], who[20], word[20];
	struct step new;
	int s;
	FILE *f = most ? 0 : fopen(getenv("TRACE"), "r"); /* Spin may come here again */
	if (!f && !most) { perror(getenv("TRACE")); exit(2); }
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%d %19s %19s %d", &new.at, who, word, &new.about) != 4) { fprintf(stderr, "no step: %s", line); exit(2); }
		new.what = find(whats, word);
		strcpy(new.text, line);
		s = find(whos, who);
		if (count[s] == 32000) { fprintf(stderr, "too long a trace\n"); exit(2); }
		steps[s][count[s]++] = new;
	}
	for (s = 0; s < SOURCES; s++) look(s);
	if (!f) return;
	most = 1;
	fclose(f);
	atexit(tell);
}
};

active proctype Trace() {
	byte s;
	d_step { c_code { read_trace(); }; read_in = true };
end:	do
	:: d_step { what[callers] == unlocks && first(callers) ->
		if
		:: number[0] == about[callers] -> unlocking[0] = true
		:: number[1] == about[callers] -> unlocking[1] = true
		:: else /* of a turn that is over */
		fi;
		taken_from_trace(callers) }
	:: d_step { what[0] == shared_for_25_ms && first(0) && !(believes(0) && lease[0] == about[0]) -> taken_from_trace(0) }
	:: d_step { what[1] == shared_for_25_ms && first(1) && !(believes(1) && lease[1] == about[1]) -> taken_from_trace(1) }
	:: d_step { read_in && !what[0] && !what[1] && !what[2] && !what[3] ->
		the_trace_is_a_run = true;
		assert(!the_trace_is_a_run) }
	od
}
