package doctor

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileSystems are those of statfs(2) that are findings. Some have no name in package unix.
var fileSystems = map[uint32]fileSystem{
	unix.NFS_SUPER_MAGIC:       {"NFS", "local-network"},
	unix.CIFS_SUPER_MAGIC:      {"CIFS", "local-network"},
	unix.SMB_SUPER_MAGIC:       {"SMB", "local-network"},
	unix.SMB2_SUPER_MAGIC:      {"SMB", "local-network"},
	unix.FUSE_SUPER_MAGIC:      {"FUSE", "local-network"},
	unix.V9FS_MAGIC:            {"9P", "local-network"},
	unix.AFS_SUPER_MAGIC:       {"AFS", "local-network"},
	unix.AFS_FS_MAGIC:          {"AFS", "local-network"},
	unix.CODA_SUPER_MAGIC:      {"Coda", "local-network"},
	unix.CEPH_SUPER_MAGIC:      {"Ceph", "local-network"},
	unix.OCFS2_SUPER_MAGIC:     {"OCFS2", "local-network"},
	unix.NCP_SUPER_MAGIC:       {"NCP", "local-network"},
	0x01161970:                 {"GFS2", "local-network"},
	0x0bd00bd0:                 {"Lustre", "local-network"},
	0x47504653:                 {"GPFS", "local-network"},
	unix.TMPFS_MAGIC:           {"tmpfs", "local-memory"},
	unix.RAMFS_MAGIC:           {"ramfs", "local-memory"},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", "local-container"},
}

func fileSystemOf(dir string) (fileSystem, error) {
	var s unix.Statfs_t
	err := unix.Statfs(dir, &s)
	return fileSystems[uint32(s.Type)], err // magic numbers have 32 bits; some machines extend their sign
}

func ownerOf(info os.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
