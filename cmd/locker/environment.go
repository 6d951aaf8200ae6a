package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstile/locker"
)

// environment returns what COMMAND finds in its environment: outer, with the names and the
// numbers of the locks. Nothing stays of a locker around this one: its token would be taken
// for ours.
func environment(outer []string, set *locker.Set) []string {
	values := make(map[string][]string)
	add := func(name, value string) { values[name] = append(values[name], value) }
	for _, lock := range set.Locks() {
		add("LOCKER_NAME", lock.Name())
		if number := lock.SharedToken(); number != 0 {
			add("LOCKER_SHARED_TOKEN", number.String())
		} else {
			add("LOCKER_TOKEN", lock.Token().String())
		}
		if slot := lock.Slot(); slot >= 0 {
			add("LOCKER_SLOT", strconv.Itoa(slot))
		}
	}
	env := slices.Clone(outer)
	for _, name := range []string{"LOCKER_NAME", "LOCKER_TOKEN", "LOCKER_SHARED_TOKEN", "LOCKER_SLOT"} {
		env = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") || strings.HasPrefix(s, name+"S=") })
		switch lines := values[name]; {
		case len(lines) == 1:
			env = append(env, name+"="+lines[0])
		case len(lines) > 1:
			env = append(env, name+"S="+strings.Join(lines, "\n"))
		}
	}
	return env
}
