// Package testbed sets up every backend on real servers, with the faults that this machine
// can inject, for the scenarios of proof/matrix.
package testbed

import (
	"slices"

	"github.com/lockstile/locker/proof/matrix"
)

// Subjects returns every backend in every configuration.
func Subjects() []matrix.Subject {
	return slices.Concat(
		hostSubjects(), redisSubjects(), redlockSubjects(),
		[]matrix.Subject{etcdSubject(), zooKeeperSubject()}, postgresSubjects(), registerSubjects(),
	)
}

// must ends what the lab is doing if a step on a server did not work.
func must(lab *matrix.Lab, what string, err error) {
	if err != nil {
		lab.Fatalf("%s: %w", what, err)
	}
}

// try returns a function that runs steps on servers, and returns the error of the first
// that does not work.
func try(lab *matrix.Lab, steps ...func()) func() error {
	return func() error {
		return lab.Try(func() {
			for _, step := range steps {
				step()
			}
		})
	}
}

// server is a process that can be stopped.
type server interface {
	comparable
	Addr() string
	Pause()
	Resume()
}

// onePart is one server alone.
func onePart[S server](lab *matrix.Lab, before string, s S) (matrix.Part, error) {
	ps, err := lab.Proxy(s.Addr())
	return matrix.Part{URL: before + ps.Addrs(), Net: ps, Stop: try(lab, s.Pause), Resume: try(lab, s.Resume)}, err
}

// another returns one of all that is not one.
func another[S server](all []S, one S) S {
	if all[0] != one {
		return all[0]
	}
	return all[1]
}
