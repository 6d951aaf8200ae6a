package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

func TestWhatIsUnknownOrMeasuresNothingIsRefused(t *testing.T) {
	fine := settings{rounds: 3, each: time.Second, stores: "redis,etcd", workloads: "uncontended,held"}
	if err := fine.check(nil); err != nil {
		t.Error(err)
	}
	for name, s := range map[string]settings{
		"a store":      {rounds: 1, each: 1, stores: "redis,nonsense"},
		"no store":     {rounds: 1, each: 1, stores: "redis,"},
		"a workload":   {rounds: 1, each: 1, workloads: "nonsense"},
		"no rounds":    {rounds: 0, each: 1},
		"no time":      {rounds: 1},
		"half a table": {rounds: 1, each: 1, markdown: "x.md"},
	} {
		if s.check(nil) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if fine.check([]string{"redis"}) == nil {
		t.Error("a store without its flag was accepted")
	}
}

// measured returns the subjects in the order in which they were measured, those
// that are left in the end, and what failed.
func measured(t *testing.T, rounds int, fails string) (order, left []string, failed []error) {
	t.Helper()
	load := workload{takes: everybody, run: func(_ context.Context, tr trial) (figures, error) {
		order = append(order, tr.subject.name)
		if tr.subject.name == fails {
			return nil, errors.New("broken")
		}
		return figures{"time": 1}, nil
	}}
	r := &running{subjects: []subject{{name: "a"}, {name: "b"}, {name: "c"}}}
	results, failed := measure(t.Context(), settings{rounds: rounds, stderr: io.Discard}, r, load)
	for _, res := range results {
		left = append(left, res.subject.name)
		if len(res.rounds) != rounds {
			t.Errorf("%s has %d rounds", res.subject.name, len(res.rounds))
		}
	}
	return order, left, failed
}

func TestEveryRoundBeginsWithAnotherSubject(t *testing.T) {
	if order, _, _ := measured(t, 3, ""); !slices.Equal(order, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}) {
		t.Errorf("order %v", order)
	}
}

func TestSubjectThatFailsTakesPartNoMore(t *testing.T) {
	order, left, failed := measured(t, 2, "b")
	if !slices.Equal(order, []string{"a", "b", "c", "c", "a"}) || !slices.Equal(left, []string{"a", "c"}) || len(failed) != 1 {
		t.Errorf("measured %v, left %v, failed %v", order, left, failed)
	}
}
