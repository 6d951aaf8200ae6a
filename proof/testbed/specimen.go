package testbed

import (
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

// Specimen returns a lock on one Redis that is broken on purpose (package specimen), to
// check the scenarios with.
func Specimen(flaw string) matrix.Subject {
	return matrix.Subject{
		Name: "specimen: " + flaw, About: "broken on purpose",
		Guarantees: new(specimen.Locker).Guarantees(),
		Start: func(lab *matrix.Lab) (*matrix.System, error) {
			srv := testserver.Redis(lab)
			srv.Do("SET", "tickets", "0") // the one key that is no lock's: it is there from the start
			return &matrix.System{
				Client:   clients(lab, "specimen:"+flaw+"@", srv.Addr()),
				Stored:   storedOnRedis(srv),
				Stranger: func(name string) (func() error, error) { return redisStranger(srv)("k:" + name) },
			}, nil
		},
	}
}
