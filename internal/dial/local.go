package dial

import (
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/local"
)

func localScheme() Scheme {
	var none local.Locker // what it promises does not depend on its directory
	return Scheme{"local:[DIR]", "this machine's kernel, without a server", none.Guarantees()}
}

// openLocal takes dir as it is: a percent sign in it is one. An empty one is the
// user's own directory, which is made if need be.
func openLocal(dir string) (Backend, error) {
	l, err := newLocal(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, driver.Refused(err))
	}
	return l, nil
}

// Local is a Locker and where it is.
type Local struct {
	*local.Locker
	Dir       string
	ByDefault bool // nobody has named it
}

func newLocal(dir string) (*Local, error) {
	byDefault := dir == ""
	if byDefault {
		var err error
		if dir, err = local.DefaultDir(); err != nil {
			return nil, err
		}
	}
	l, err := local.New(dir)
	if err != nil {
		return nil, err
	}
	return &Local{l, dir, byDefault}, nil
}
