package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// DefaultDir returns the directory in which the programs of this user keep
// their locks unless told otherwise, and makes it if need be: lockstile in
// $XDG_RUNTIME_DIR, or else lockstile-<uid> in [os.TempDir]. One that belongs to
// somebody else or that others can write to is an error: they could break locks,
// or have made the directory so that they can.
func DefaultDir() (string, error) {
	if unsupported != nil {
		return "", fmt.Errorf("local: %w", unsupported)
	}
	dir := filepath.Join(os.TempDir(), "lockstile-"+strconv.Itoa(os.Geteuid()))
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) { // others are to be ignored, says its specification
		dir = filepath.Join(runtime, "lockstile")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("local: make the default directory: %w", err)
	}
	if err := checkOwn(dir); err != nil {
		return "", fmt.Errorf("local: the default directory %s %w: give a directory of your own to New", dir, err)
	}
	return dir, nil
}

// checkOwn does not follow a link that somebody else may have put there.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("cannot be looked at: %w", err)
	case !info.IsDir():
		return errors.New("is not a directory")
	case owner(info) != os.Geteuid():
		return fmt.Errorf("belongs to user %d and not to %d", owner(info), os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("can be written to by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}
