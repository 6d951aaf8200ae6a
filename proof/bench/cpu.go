package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, on every Linux.
const tick = 10 * time.Millisecond

// cpuTime is how long processors have worked: for this process, which is the
// client, and for those that it has started, which are the servers. Where there is
// no /proc both are NaN.
type cpuTime struct{ client, servers float64 } // in nanoseconds

// process is what /proc says about one process.
type process struct {
	parent int
	ticks  int64
}

func readCPU() cpuTime {
	all := processes()
	self := os.Getpid()
	if len(all) == 0 {
		return cpuTime{math.NaN(), math.NaN()}
	}
	var t cpuTime
	for pid, p := range all {
		switch {
		case pid == self:
			t.client += float64(p.ticks) * float64(tick)
		case descends(all, p, self):
			t.servers += float64(p.ticks) * float64(tick)
		}
	}
	return t
}

// since is the time since before, divided by the number of operations.
func (t cpuTime) since(before cpuTime, ops float64) cpuTime {
	return cpuTime{(t.client - before.client) / ops, (t.servers - before.servers) / ops}
}

// descends reports whether the process comes from one with this number.
func descends(all map[int]process, p process, from int) bool {
	for range len(all) {
		if p.parent == from {
			return true
		}
		p = all[p.parent]
	}
	return false
}

// processes returns the processes that run now, by their ids.
func processes() map[int]process {
	all := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		stat, err := os.ReadFile(path) //nolint:gosec // /proc
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(string(stat)); ok {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			all[pid] = p
		}
	}
	return all
}

// parseStat reads "pid (program) state parent …", where the program may contain anything.
// The 14th and 15th fields are the processor time of the program and of the kernel for it.
func parseStat(stat string) (process, bool) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	user, err2 := strconv.ParseInt(fields[11], 10, 64)
	kernel, err3 := strconv.ParseInt(fields[12], 10, 64)
	return process{parent, user + kernel}, err1 == nil && err2 == nil && err3 == nil
}
