package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstile/locker/fencing"
)

// A lock file is three records at the starts of three blocks: what it is and
// of which lock, and two slots for the last grant, written in turn. Each record
// begins with the hash of the rest of it. They are a block apart so that
// a write that a power cut tears damages one record and not its neighbour.
const (
	blockSize  = 4096
	fileSize   = 3 * blockSize
	recordSize = 1024 // the longest name and the longest holder text fit well
	sumSize    = sha256.Size
	magic      = "lockstile/local 1\n"
)

// A grant has many tokens, for the goroutines of the process that share it. Where the
// counter is ahead of the clock it has few: no process makes a grant in 8 µs. So the
// counter does not run away from the clock, which goes on where the file is deleted.
const (
	manyTokens = 64
	fewTokens  = 8
)

// grant is what a slot says.
type grant struct {
	last   fencing.Token // of the tokens that were granted; 0 if there never were any
	count  uint32        // how many there are, up to last; 0: there was no grant in this file yet, see draw
	holder string
}

func (g grant) first() fencing.Token { return g.last + 1 - fencing.Token(max(1, g.count)) }

// next returns the grant after g: its first token is one more than the last, or the
// clock if that is ahead. The clock is there for what the file cannot remember: that
// it was deleted, or that a newer slot than the one we read went bad on the disk.
func (g grant) next(holder string) (grant, error) {
	first, count := fencing.Token(max(0, time.Now().UnixMicro())), uint32(manyTokens)
	if g.last >= first {
		first, count = g.last+1, fewTokens
	}
	if first == 0 || first > math.MaxUint64-manyTokens {
		return grant{}, errors.New("the tokens are at the greatest that there is")
	}
	return grant{first + fencing.Token(count) - 1, count, holder}, nil
}

// seal returns a record with body.
func seal(body []byte) []byte {
	record := make([]byte, recordSize)
	copy(record[sumSize:], body)
	sum := sha256.Sum256(record[sumSize:])
	copy(record, sum[:])
	return record
}

// unseal returns what follows the hash of block i, or nil if it is damaged.
func unseal(content []byte, i int) []byte {
	record := content[i*blockSize:][:recordSize]
	sum := sha256.Sum256(record[sumSize:])
	if !bytes.Equal(sum[:], record[:sumSize]) {
		return nil
	}
	return record[sumSize:]
}

func (g grant) record() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(g.last))
	b = binary.BigEndian.AppendUint32(b, g.count)
	return seal(appendText(b, g.holder))
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// text reads what appendText wrote.
func text(b []byte) string {
	n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
	return string(b[2:][:n])
}

// newContent is a complete lock file.
func newContent(name string, last grant) []byte {
	content := make([]byte, fileSize)
	copy(content, seal(appendText([]byte(magic), name)))
	copy(content[blockSize:], last.record())
	copy(content[2*blockSize:], last.record())
	return content
}

// readGrants reads the content of a lock file: its newest grant, and the block
// that the next one goes to.
//
// One bad slot is what a crash in the middle of a write leaves. That write was
// not synced, so its tokens were never returned and the other slot has the last
// that were. The next ones may be the very numbers that were torn: nobody has
// them. The bad slot is the one to write to, whatever its tokens may have been, so
// that there is always a good one. Two bad slots, or a bad beginning, are never
// the result of a crash of ours, and there is no telling what tokens were given.
func readGrants(content []byte, path, name string) (newest grant, spare int, err error) {
	if len(content) != fileSize {
		return newest, 0, damaged(path, fmt.Sprintf("it has not %d bytes", fileSize))
	}
	of, isOurs := readName(content)
	if !isOurs {
		return newest, 0, damaged(path, "it does not begin as a lock file does")
	}
	if of != name {
		return newest, 0, fmt.Errorf("the lock file %s belongs to the lock %q: was it copied? If nobody uses it, delete it", path, of)
	}
	for i := 1; i <= 2; i++ {
		b := unseal(content, i)
		if b == nil {
			continue
		}
		g := grant{fencing.Token(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), text(b[12:])}
		if spare == 0 || g.last > newest.last {
			newest, spare = g, 3-i
		}
	}
	if spare == 0 {
		return newest, 0, damaged(path, "both of its records of the last token are bad")
	}
	return newest, spare, nil
}

// readName reads which lock the file is of.
func readName(content []byte) (name string, isOurs bool) {
	head, isOurs := bytes.CutPrefix(unseal(content, 0), []byte(magic))
	if !isOurs {
		return "", false
	}
	return text(head), true
}

func damaged(path, how string) error {
	return fmt.Errorf("the lock file %s is damaged: %s, so its last token is not known: "+
		"stop everybody who uses the lock, delete the file, and tokens go on from this machine's clock", path, how)
}
