package contract

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// Detached is what a handle says: a lock that has left its process.
type Detached struct {
	Backend string // the package that has made it
	Name    string
	TTL     time.Duration
	IDs     []string // the store has the lock under one of these
}

const (
	// begin is what every handle begins with. The number is that of the format.
	begin, format = "lockstile", "1-"
	// maxHandle is the length of the longest handle.
	maxHandle = 1024
)

// Handle returns the text. A checksum tells one that was cut off. Each try to resume that ended without an answer adds an id. When they are too many,
// the first stays, which has the lock if none of them was carried out, and the oldest of the others go: then the lock may not be found, and ends with its TTL.
func (d Detached) Handle() string {
	b := binary.AppendUvarint(nil, uint64(d.TTL.Milliseconds()))
	for _, s := range append([]string{d.Backend, d.Name}, d.IDs...) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	text := begin + format + base64.RawURLEncoding.EncodeToString(b)
	if len(text) > maxHandle && len(d.IDs) > 1 {
		d.IDs = slices.Delete(slices.Clone(d.IDs), 1, 2)
		return d.Handle()
	}
	return text
}

// ParseHandle returns what a handle says. Errors do not show it. Whitespace around it does not count: it may come from a file.
func ParseHandle(text string) (d Detached, err error) {
	text = strings.TrimSpace(text)
	rest, ours := strings.CutPrefix(text, begin)
	encoded, known := strings.CutPrefix(rest, format)
	switch {
	case text == "":
		return d, errors.New("the handle is empty")
	case !ours:
		return d, errors.New("this is no handle of a lock: one begins with " + begin)
	case !known:
		return d, errors.New("the handle was made by another version of this library, which this one cannot read")
	}
	damaged := errors.New("the handle is damaged: it was cut off, or changed")
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(b) < 4 || len(text) > maxHandle {
		return d, damaged
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	ttl, n := binary.Uvarint(b)
	if n <= 0 || crc32.ChecksumIEEE(b) != sum {
		return d, damaged
	}
	var texts []string
	for b = b[n:]; len(b) > 0; {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return d, damaged
		}
		texts, b = append(texts, string(b[n:n+int(size)])), b[n+int(size):]
	}
	if len(texts) < 3 {
		return d, damaged
	}
	return Detached{texts[0], texts[1], time.Duration(ttl) * time.Millisecond, texts[2:]}, nil
}
