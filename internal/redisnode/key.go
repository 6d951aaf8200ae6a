package redisnode

import (
	"fmt"
	"strconv"
	"strings"
)

// reserved begins all keys and channels that are ours and not a lock. A lock's
// own key is its name, as the Redlock page has it, so no lock may begin so.
const reserved = "lockstile:"

// Keys are the keys of one lock. They share a Cluster hash slot.
type Keys struct {
	Lock  string // the holder's value: what every Redlock client looks at
	last  string // the last grant: token, value and holder
	queue string // waiters, a sorted set by time of arrival
	mark  string // prefix of the marks of values that must not be granted
}

// NewKeys returns the keys of the lock called name.
func NewKeys(name string) (Keys, error) {
	if strings.HasPrefix(name, reserved) {
		return Keys{}, fmt.Errorf("names that begin with %q are reserved for the locks' own bookkeeping", reserved)
	}
	tag := hashTag(name)
	tail := "{" + tag + "}"
	if tag != name {
		tail += ":" + name
	}
	return Keys{
		Lock:  name,
		last:  reserved + "t:" + tail,
		queue: reserved + "q:" + tail,
		mark:  reserved + "m:" + tail + ":",
	}, nil
}

func (k Keys) list(value string) []string {
	return []string{k.Lock, k.last, k.queue, k.mark + value}
}

// hashTag returns a text that, in braces, puts a key into the slot of key
// (Redis Cluster specification, "Hash tags"). Two keys that differ may have the
// same tag.
func hashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			return key[open+1 : open+1+n]
		}
	}
	if !strings.Contains(key, "}") {
		return key
	}
	// The whole key is hashed, but it cannot stand in braces for it would
	// close them too early. Some number has its slot: 16,384 tries on average.
	want := slot(key)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slot(tag) == want {
			return tag
		}
	}
}

// slot is the Cluster slot of a key without a hash tag: CRC16 (XMODEM) modulo
// 16384.
func slot(key string) uint16 {
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
