package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/lockstile/locker"
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

// grant is what a slot says.
type grant struct {
	token  fencing.Token // of the last grant; 0 if there never was one
	pid    uint32        // 0: there was no grant in this file yet, see draw
	holder string
}

// next returns the token after t: one more, or the clock if that is ahead. The
// clock is there for what the file cannot remember: that it was deleted, or
// that a newer slot than the one we read went bad on the disk.
func next(t fencing.Token) (fencing.Token, error) {
	if t == math.MaxUint64 {
		return 0, errors.New("the token is the greatest that there is")
	}
	return max(t+1, fencing.Token(max(0, time.Now().UnixMicro()))), nil
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
	b := binary.BigEndian.AppendUint64(nil, uint64(g.token))
	b = binary.BigEndian.AppendUint32(b, g.pid)
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
// not synced, so its token was never returned and the other slot has the last
// one that was. The next token may be the very number that was torn: nobody has
// it. The bad slot is the one to write to, whatever its token may have been, so
// that there is always a good one. Two bad slots, or a bad beginning, are never
// the result of a crash of ours, and there is no telling what tokens were given.
func readGrants(content []byte, path, name string) (newest grant, spare int, err error) {
	if len(content) != fileSize {
		return newest, 0, damaged(path, fmt.Sprintf("it has not %d bytes", fileSize))
	}
	head, isOurs := bytes.CutPrefix(unseal(content, 0), []byte(magic))
	if !isOurs {
		return newest, 0, damaged(path, "it does not begin as a lock file does")
	}
	if of := text(head); of != name {
		return newest, 0, fmt.Errorf("%w: the lock file %s belongs to the lock %q: was it copied? If nobody uses it, delete it",
			locker.ErrUnavailable, path, of)
	}
	for i := 1; i <= 2; i++ {
		b := unseal(content, i)
		if b == nil {
			continue
		}
		g := grant{fencing.Token(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), text(b[12:])}
		if spare == 0 || g.token > newest.token {
			newest, spare = g, 3-i
		}
	}
	if spare == 0 {
		return newest, 0, damaged(path, "both of its records of the last token are bad")
	}
	return newest, spare, nil
}

func damaged(path, how string) error {
	return fmt.Errorf("%w: the lock file %s is damaged: %s, so its last token is not known: "+
		"stop everybody who uses the lock, delete the file, and tokens go on from this machine's clock",
		locker.ErrUnavailable, path, how)
}

func newGrant(token fencing.Token, holder string) grant {
	return grant{token, uint32(os.Getpid()), holder}
}
