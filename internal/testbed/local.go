package testbed

import (
	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance/matrix"
)

func localSubject() matrix.Subject {
	return matrix.Subject{
		Name: "local", About: "kernel file locks of one host",
		Guarantees: locker.Guarantees{Release: locker.ByProcess},
		Start: func(lab *matrix.Lab) (*matrix.System, error) {
			dir := lab.TempDir()
			return &matrix.System{
				Client: func() (string, matrix.Network, error) { return "local:" + dir, nil, nil },
			}, nil
		},
	}
}
