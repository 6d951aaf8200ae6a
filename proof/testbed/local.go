package testbed

import (
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/proof/matrix"
)

func localSubject() matrix.Subject {
	return matrix.Subject{
		Name: "local", About: "kernel file locks of one host", Guarantees: (*local.Locker)(nil).Guarantees(),
		Start: func(lab *matrix.Lab) (*matrix.System, error) {
			dir := lab.TempDir()
			return &matrix.System{
				Client: func() (string, conformance.Network, error) { return "local:" + dir, nil, nil },
				Stored: func() (matrix.Stored, error) { return storedInFiles(dir) },
			}, nil
		},
	}
}
