package dial

import (
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/file"
)

func fileScheme() Scheme {
	return Scheme{"file:DIR", "files in a directory of this machine: locks with a TTL, without a server", file.Guarantees()}
}

// File is a Locker and where it is.
type File struct {
	*register.Locker
	Dir string
}

// openFile takes dir as it is.
func openFile(dir string) (Backend, error) {
	l, err := file.New(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", locker.ErrUnavailable, driver.Refused(err))
	}
	return &File{l, dir}, nil
}
