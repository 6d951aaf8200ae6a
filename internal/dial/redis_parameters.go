package dial

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

const (
	// mostConns is more connections than one address can have to another. The
	// clients make room at once for as many as they are told, and run out of
	// memory.
	mostConns = 1<<16 - 1

	// longest bounds durations that clients add to others or multiply.
	longest = 24 * time.Hour
)

// value is what a parameter takes: in words, and as a check.
type value struct {
	is string
	ok func(text string) bool
}

func numberFrom(least, most int) value {
	return value{fmt.Sprintf("a number from %d to %d", least, most), func(text string) bool {
		n, err := strconv.Atoi(text)
		return err == nil && least <= n && n <= most
	}}
}

var (
	truth = value{"true or false", func(text string) bool {
		return text == "true" || text == "false" || text == "1" || text == "0"
	}}

	// positive is no timeout that is switched off: a lock could hang on it, and
	// the client takes 0 for dial_timeout as no time at all.
	positive = value{fmt.Sprintf("a duration such as 500ms, of 1ms to %v", longest), func(text string) bool {
		d, ok := durationOf(text)
		return ok && time.Millisecond <= d && d <= longest
	}}

	// orNever is a duration, or 0 for none.
	orNever = value{fmt.Sprintf("a duration such as 5m, of 0 to %v", longest), func(text string) bool {
		d, ok := durationOf(text)
		return ok && 0 <= d && d <= longest
	}}

	// retries has no 0, which the client takes for its default.
	retries = value{"-1, for none, or a number from 1 to 100", func(text string) bool {
		n, err := strconv.Atoi(text)
		return err == nil && (n == -1 || 1 <= n && n <= 100)
	}}
)

// durationOf reads a duration as the client does: a number alone is seconds.
func durationOf(text string) (time.Duration, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(n) * time.Second, -1 <= n && n <= int(longest/time.Second)
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// redisParameters are those of the client's that make sense for locks. It knows
// more: some it would take and do nothing with (addr, master_name, a db that
// differs from the path's), some make it panic (route_randomly with Sentinels), and
// some ask a replica (read_only, replica_only).
var redisParameters = map[string]value{
	"client_name":        {"text", func(string) bool { return true }},
	"protocol":           numberFrom(2, 3),
	"max_retries":        retries,
	"min_retry_backoff":  orNever,
	"max_retry_backoff":  orNever,
	"dial_timeout":       positive,
	"read_timeout":       positive,
	"write_timeout":      positive,
	"pool_timeout":       positive,
	"pool_fifo":          truth,
	"pool_size":          numberFrom(1, mostConns),
	"min_idle_conns":     numberFrom(0, mostConns),
	"max_idle_conns":     numberFrom(0, mostConns),
	"max_active_conns":   numberFrom(0, mostConns),
	"conn_max_idle_time": orNever,
	"conn_max_lifetime":  orNever,
}

// forRedis refuses what the client would ignore, misread or panic at. Our own
// parameters have been taken off before.
func (a *address) forRedis(scheme string) error {
	if a.user != "" && a.pass == "" {
		return fmt.Errorf("%s:// takes no user name without a password: the client would come as nobody", scheme)
	}
	if a.path != "" {
		if n, err := strconv.Atoi(a.path); err != nil || n < 0 {
			return fmt.Errorf("the path of a %s:// URL ends with the database, a number from 0 on", scheme)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.query)) {
		want, known := redisParameters[name]
		if name == "skip_verify" && (scheme == "rediss" || scheme == "redlocks") {
			want, known = truth, true
		}
		if !known {
			return fmt.Errorf("%s:// has no parameter %q", scheme, name)
		}
		if text := a.query.Get(name); !want.ok(text) {
			return fmt.Errorf("%s=%q is not %s", name, text, want.is)
		}
	}
	return nil
}
