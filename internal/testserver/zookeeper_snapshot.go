package testserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
)

// SetSequence makes the server give the next sequential child of a node this number. No
// client can ask for that, so the server is killed, its snapshot is patched, and it is
// started again. It is for a server that stands alone.
func (s *ZooKeeperServer) SetSequence(path string, next int32) {
	s.t.Helper()
	s.Kill()
	s.Start() // it takes a snapshot of everything
	s.Kill()
	if err := s.patchSequence(path, next); err != nil {
		s.t.Fatalf("patching zookeeper's snapshot: %v", err)
	}
	s.Start()
}

func (s *ZooKeeperServer) patchSequence(path string, next int32) error {
	snapshots, err := filepath.Glob(filepath.Join(s.dir, "version-2", "snapshot.*"))
	if err != nil {
		return err
	}
	patched := 0
	for _, file := range snapshots {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !setCversion(data, path, next) {
			continue // from before the node was made
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		patched++
	}
	if patched == 0 {
		return fmt.Errorf("%w: %s", errNoNode, path)
	}
	return nil
}

var errNoNode = errors.New("no snapshot has the node")

// sealEnd ends the nodes of a snapshot, and every checksum that follows.
var sealEnd = []byte("\x00\x00\x00\x01/")

// setCversion changes the cversion of a node and the checksums of the snapshot
// that it is in. A node is its path and its data, each after its length, then
// acl, czxid, mzxid, ctime and mtime of eight bytes, version and cversion of four.
func setCversion(snapshot []byte, path string, cversion int32) bool {
	seals := sealsOf(snapshot)
	name := binary.BigEndian.AppendUint32(nil, uint32(len(path)))
	name = append(name, path...)
	at := bytes.Index(snapshot, name)
	if at < 0 || len(seals) == 0 {
		return false
	}
	at += len(name)
	if size := int32(binary.BigEndian.Uint32(snapshot[at:])); size > 0 { // it is -1 where there is no data
		at += int(size)
	}
	binary.BigEndian.PutUint32(snapshot[at+4+5*8+4:], uint32(cversion))
	for _, seal := range seals {
		binary.BigEndian.PutUint64(snapshot[seal:], uint64(adler32.Checksum(snapshot[:seal])))
	}
	return true
}

// sealsOf returns where the checksums are. Each covers all that comes before it.
func sealsOf(snapshot []byte) (seals []int) {
	for at := 8; ; at++ {
		next := bytes.Index(snapshot[at:], sealEnd)
		if next < 0 {
			return seals
		}
		at += next
		if sum := binary.BigEndian.Uint64(snapshot[at-8:]); sum == uint64(adler32.Checksum(snapshot[:at-8])) {
			seals = append(seals, at-8)
		}
	}
}
