package open

import (
	"fmt"

	"github.com/lockstile/locker"
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
		return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	}
	return l, nil
}

func newLocal(dir string) (*local.Locker, error) {
	if dir == "" {
		var err error
		if dir, err = local.DefaultDir(); err != nil {
			return nil, err
		}
	}
	return local.New(dir, local.Options{})
}
