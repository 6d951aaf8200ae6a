package lockdir

import (
	"os"

	"golang.org/x/sys/unix"
)

const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// fileMode is for the owner alone. The sticky bit means nothing to the kernel on
// a file. It keeps systemd-tmpfiles from deleting the file of a held lock, which
// looks old after 10 days in /tmp: "Skip files for which the sticky bit is set",
// says dir_cleanup in its src/tmpfiles/tmpfiles.c, and refers to the specification
// of $XDG_RUNTIME_DIR, where 6 hours are enough to look old. It also passes over
// directories that somebody has locked with flock, which costs a descriptor.
const fileMode = os.ModeSticky | 0o600

// fileSystems are those of statfs(2) that are of interest. Some have no name in package unix: their numbers are in coreutils' src/stat.c.
var fileSystems = map[uint32]FileSystem{
	unix.NFS_SUPER_MAGIC:       {"NFS", Network},
	unix.CIFS_SUPER_MAGIC:      {"CIFS", Network},
	unix.SMB_SUPER_MAGIC:       {"SMB", Network},
	unix.SMB2_SUPER_MAGIC:      {"SMB", Network},
	unix.FUSE_SUPER_MAGIC:      {"FUSE", Network}, // virtiofs too
	unix.V9FS_MAGIC:            {"9P", Network},
	unix.AFS_SUPER_MAGIC:       {"AFS", Network},
	unix.AFS_FS_MAGIC:          {"AFS", Network},
	unix.CODA_SUPER_MAGIC:      {"Coda", Network},
	unix.CEPH_SUPER_MAGIC:      {"Ceph", Network},
	unix.OCFS2_SUPER_MAGIC:     {"OCFS2", Network},
	unix.NCP_SUPER_MAGIC:       {"NCP", Network},
	0x01161970:                 {"GFS2", Network},
	0x0bd00bd0:                 {"Lustre", Network},
	0x47504653:                 {"GPFS", Network},
	0x19830326:                 {"BeeGFS", Network},
	0x013111a8:                 {"IBRIX", Network},
	0xaad7aaea:                 {"PanFS", Network},
	0xbeefdead:                 {"StorNext", Network},
	0xa501fcf5:                 {"VxFS", Network},
	0x61636673:                 {"ACFS", Network},
	0x7c7c6673:                 {"prl_fs", Network},
	0x786f4256:                 {"vboxsf", Network},
	0xbacbacbc:                 {"vmhgfs", Network},
	unix.TMPFS_MAGIC:           {"tmpfs", Memory},
	unix.RAMFS_MAGIC:           {"ramfs", Memory},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", Container},
}

// FileSystemOf returns what a directory is on.
func FileSystemOf(dir string) (FileSystem, error) {
	var s unix.Statfs_t
	err := unix.Statfs(dir, &s)
	return fileSystems[uint32(s.Type)], err // magic numbers have 32 bits; some machines extend their sign
}
