package testbed

import (
	"slices"

	"github.com/lockstile/locker/proof/matrix"
)

// Short returns the backends and the scenarios that show most in a minute.
func Short() ([]matrix.Subject, []matrix.Scenario) {
	subjects := []string{"local", "singlenode", "redlock", "etcd", "zookeeper", "postgres", "postgres session"}
	scenarios := []string{
		"pause before the write", "handed over", "unlock by a former holder", "holder cut off", "lost reply to a lock",
		"late unlock", "slow answer", "server crashes", "servers disagree", "herd",
		"pause before the write (reader first)", "herd (writer first)", "herd (slots)",
	}
	return named(Subjects(), subjects, func(s matrix.Subject) string { return s.Name }),
		named(matrix.Scenarios(), scenarios, func(s matrix.Scenario) string { return s.Name })
}

func named[T any](all []T, names []string, name func(T) string) []T {
	return slices.DeleteFunc(all, func(one T) bool { return !slices.Contains(names, name(one)) })
}
