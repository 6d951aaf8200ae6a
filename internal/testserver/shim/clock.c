/* A wall clock that can be stepped, for servers under test: adds the number of
 * microseconds in the file $LOCKSTILE_CLOCK_OFFSET to what the C library says.
 * The monotonic clocks are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset(void)
{
	char text[32];
	const char *path = getenv("LOCKSTILE_CLOCK_OFFSET");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	return atoll(text);
}

static void shift(struct timespec *ts)
{
	long long ns = ts->tv_nsec + (offset() % 1000000) * 1000;
	ts->tv_sec += offset() / 1000000 + ns / 1000000000;
	ts->tv_nsec = ns % 1000000000;
	if (ts->tv_nsec < 0) {
		ts->tv_nsec += 1000000000;
		ts->tv_sec--;
	}
}

/* The system call and not the next library's function: looking that up may
 * allocate, and an allocator may ask for the time. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		shift(ts);
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
