package testbed

import (
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/register/file"
)

// hostSubjects are the backends of one host, which have no server.
func hostSubjects() []matrix.Subject {
	return []matrix.Subject{
		{Name: "local", About: "kernel file locks of one host", Guarantees: (*local.Locker)(nil).Guarantees(), Start: inDirectory("local:")},
		{Name: "file", About: "records in files of one host", Guarantees: file.Guarantees(), Start: inDirectory("file:")},
	}
}

func inDirectory(scheme string) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		dir := lab.TempDir()
		return &matrix.System{
			Client: func() (string, conformance.Network, error) { return scheme + dir, nil, nil },
			Stored: func() (matrix.Stored, error) { return storedInFiles(dir) },
		}, nil
	}
}
