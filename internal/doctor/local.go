package doctor

import (
	"os"
	"path/filepath"

	"github.com/lockstile/locker/internal/lockdir"
)

// onFileSystem has the codes of findings about what a directory is on.
var onFileSystem = map[lockdir.Kind]string{
	lockdir.Network: "local-network", lockdir.Memory: "local-memory", lockdir.Container: "local-container",
}

// directory looks at one in which locks are kept. ByDefault says that nobody has named it.
func (r *Report) directory(dir string, byDefault bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	a, mode := r.at(dir), info.Mode()
	switch {
	case mode.Perm()&0o022 == 0:
	case mode&os.ModeSticky == 0:
		a.found("local-writable", mode.Perm())
	default:
		a.found("local-crowded", mode.Perm())
	}
	if uid, known := ownerOf(info); known && uid != 0 && uid != os.Geteuid() {
		a.found("local-owner", uid, os.Geteuid())
	}
	if byDefault {
		a.found("local-default")
	}
	a.checked("permissions %04o", mode.Perm())
	system, err := lockdir.FileSystemOf(dir)
	if err != nil {
		a.found("unseen", "the file system", err)
		return nil
	}
	if code := onFileSystem[system.Kind]; code != "" {
		a.found(code, system.Name)
	}
	a.checked("file system")
	return nil
}
