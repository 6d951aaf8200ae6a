package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// A lock file has two slots, at the starts of two blocks, which are written in turn. A slot
// says which lock the file is of, and its last grant. It begins with the hash of the rest of
// it. They are a block apart, so a write that a power cut tears damages only one. Behind
// them are records in the same form: of the last number that was drawn of a grant which
// several have a part of, because they share the lock or have slots, and one of each of them.
const (
	blockSize = 4096
	fileSize  = 2 * blockSize
	slotSize  = 1024 // the longest name and the longest holder text fit well
	sumSize   = sha256.Size
	format    = "lockstile/local "
	magic     = format + "3\n"
	broken    = 1 << 7 // beside the kind
)

// A grant has many tokens, for the goroutines of the process that share it. Where the
// counter is ahead of the clock it has few: a grant takes longer than 8 µs, so the clock
// catches up. It has to, for if the file is deleted, tokens go on from the clock.
const (
	manyTokens = 64
	fewTokens  = 8
)

// grant is what a slot says.
type grant struct {
	lock   string        // that the file is of
	last   fencing.Token // of the tokens that were granted; 0 if there never were any
	count  uint32        // how many there are, up to last; 0: there was no grant in this file yet, see draw
	holder string

	kind        locker.Kind
	slots, slot int  // how many there are, and which it is, if kind is KindSlots
	broken      bool // in the record of a place: by force
}

func (g grant) first() fencing.Token { return g.last + 1 - fencing.Token(max(1, g.count)) }

// next returns the grant after g: its first token is one more than g's last, or the
// clock if that is ahead. The clock covers what the file cannot remember: that it was
// deleted, or that a newer slot than the one we read went bad on the disk.
func (g grant) next(req *driver.Request, slot int) (grant, error) {
	first, count := fencing.Token(max(0, time.Now().UnixMicro())), uint32(manyTokens)
	if g.last >= first {
		first, count = g.last+1, fewTokens
	}
	if first == 0 || first > math.MaxUint64-manyTokens {
		return grant{}, errors.New("the tokens are at the greatest that there is")
	}
	next := g.part(first+fencing.Token(count)-1, req, slot)
	next.count = count
	return next, nil
}

// part returns one number of a grant.
func (g grant) part(n fencing.Token, req *driver.Request, slot int) grant {
	return grant{lock: g.lock, last: n, count: 1, holder: req.Holder, kind: req.Kind, slots: req.Slots, slot: slot}
}

// encode returns a slot, or a record, that says g. Neither of its texts has a zero byte.
func (g grant) encode() []byte {
	b := append(make([]byte, sumSize), magic...)
	b = binary.BigEndian.AppendUint64(b, uint64(g.last))
	b = binary.BigEndian.AppendUint32(b, g.count)
	b = binary.BigEndian.AppendUint16(b, uint16(g.slots))
	b = binary.BigEndian.AppendUint16(b, uint16(g.slot))
	flags := byte(g.kind)
	if g.broken {
		flags |= broken
	}
	b = append(b, flags)
	b = append(b, g.lock+"\x00"+g.holder...)
	b = append(b, make([]byte, slotSize-len(b))...)
	sum := sha256.Sum256(b[sumSize:])
	copy(b, sum[:])
	return b
}

// readSlot reads what encode wrote, and reports false if b is anything else.
func readSlot(b []byte) (g grant, ok bool) {
	sum := sha256.Sum256(b[sumSize:])
	b, ok = bytes.CutPrefix(b, append(sum[:], magic...))
	if !ok {
		return g, false
	}
	g.last, g.count = fencing.Token(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])
	g.slots, g.slot = int(binary.BigEndian.Uint16(b[12:])), int(binary.BigEndian.Uint16(b[14:]))
	g.kind, g.broken = locker.Kind(b[16]&^broken), b[16]&broken != 0
	lock, rest, _ := strings.Cut(string(b[17:]), "\x00")
	g.lock, g.holder = lock, strings.TrimRight(rest, "\x00")
	return g, true
}

// newContent is a complete lock file.
func newContent(last grant) []byte {
	content := make([]byte, fileSize)
	copy(content, last.encode())
	copy(content[blockSize:], last.encode())
	return content
}

// readGrants reads the content of a lock file: its newest grant, and the slot that the
// next one goes to.
//
// One bad slot is what a crash in the middle of a write leaves. That write was
// not synced, so its tokens were never returned and the other slot has the last
// that were. The next grant may have the very numbers that were torn: nobody has
// them. It is written to the bad slot, so there is always a good one. Two bad slots
// are never the result of a crash of ours, and the last token is not known.
func readGrants(content []byte, path string) (newest grant, spare int, err error) {
	if bytes.HasPrefix(content, []byte(`{"lockstile":`)) {
		return newest, 0, fmt.Errorf("the lock file %s is of package register/file (file:DIR), which needs a directory of its own", path)
	}
	if len(content) != fileSize {
		return newest, 0, damaged(path, fmt.Sprintf("it has less than %d bytes", fileSize))
	}
	spare = -1
	for i := range 2 {
		g, ok := readSlot(content[i*blockSize:][:slotSize])
		if ok && (spare < 0 || g.last > newest.last) {
			newest, spare = g, 1-i
		}
	}
	switch {
	case spare >= 0:
		return newest, spare, nil
	case bytes.HasPrefix(content[sumSize:], []byte(format)) && !bytes.HasPrefix(content[sumSize:], []byte(magic)):
		return newest, 0, fmt.Errorf("the lock file %s is of another version of Lockstile: use one version for all who use the lock; "+
			"or stop them, delete the file, and tokens go on from this machine's clock", path)
	default:
		return newest, 0, damaged(path, "neither of its two slots can be read")
	}
}

func damaged(path, how string) error {
	return fmt.Errorf("the lock file %s is damaged: %s, so its last token is not known: "+
		"stop everybody who uses the lock, delete the file, and tokens go on from this machine's clock", path, how)
}
