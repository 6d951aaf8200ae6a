package doctor

import "testing"

// Few of them can be mounted in a test.
func TestFileSystemsAreFindingsByWhereTheirFilesAre(t *testing.T) {
	elsewhere := map[string]string{"tmpfs": "local-memory", "ramfs": "local-memory", "overlay": "local-container"}
	for magic, system := range fileSystems {
		want := elsewhere[system.name]
		if want == "" {
			want = "local-network"
		}
		if system.code != want {
			t.Errorf("%s (%#x) is %s, want %s", system.name, magic, system.code, want)
		}
	}
	// As linux/magic.h has them, or statfs(2).
	for magic, name := range map[uint32]string{0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x65735546: "FUSE", 0x00c36400: "Ceph", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x7461636f: "OCFS2"} {
		if got := fileSystems[magic].name; got != name {
			t.Errorf("%#x is %q, want %s", magic, got, name)
		}
	}
}
