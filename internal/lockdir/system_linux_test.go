package lockdir

import "testing"

// Few of them can be mounted in a test.
func TestFileSystemsAreKnownByWhereTheirFilesAre(t *testing.T) {
	elsewhere := map[string]Kind{"tmpfs": Memory, "ramfs": Memory, "overlay": Container}
	for magic, system := range fileSystems {
		want, ok := elsewhere[system.Name]
		if !ok {
			want = Network
		}
		if system.Kind != want {
			t.Errorf("%s (%#x) is of kind %d, want %d", system.Name, magic, system.Kind, want)
		}
	}
	// As linux/magic.h has them, or statfs(2).
	for magic, name := range map[uint32]string{0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x65735546: "FUSE", 0x00c36400: "Ceph", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x7461636f: "OCFS2"} {
		if got := fileSystems[magic].Name; got != name {
			t.Errorf("%#x is %q, want %s", magic, got, name)
		}
	}
}
