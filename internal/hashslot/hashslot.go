// Package hashslot puts keys of ours into the Redis Cluster slot of a user's key.
package hashslot

import (
	"strconv"
	"strings"
	"sync"
)

// Beside returns a key that begins with prefix, lies in the slot of key, and is
// beside no other key: the tag ends at the first closing brace, and what follows
// is the whole key unless the tag is that already.
func Beside(prefix, key string) string {
	tag, rest := Parts(key)
	return prefix + "{" + tag + "}" + rest
}

// Parts returns what Beside puts together, prefix + "{" + tag + "}" + rest, for
// callers that make several keys at once.
func Parts(key string) (tag, rest string) {
	tag = Tag(key)
	if tag == key {
		return tag, ""
	}
	return tag, ":" + key
}

// Tag returns a text that, in braces, puts a key into the slot of key (Redis
// Cluster specification, "Hash tags"). Two keys that differ may have the same
// tag.
func Tag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			return key[open+1 : open+1+n]
		}
	}
	if key != "" && !strings.Contains(key, "}") {
		return key
	}
	// The whole key is hashed, but it cannot stand in braces: it would close them
	// too early, and braces with nothing in them are no tag. Some number has its slot.
	return strconv.Itoa(numbers()[Slot(key)])
}

// numbers has the first number of every slot. Finding one takes 16,384 tries on
// average, which is some milliseconds: too much for every request of a lock.
var numbers = sync.OnceValue(func() *[slots]int {
	first := new([slots]int)
	for n, left := 1, slots; left > 0; n++ {
		if at := &first[Slot(strconv.Itoa(n))]; *at == 0 {
			*at = n
			left--
		}
	}
	return first
})

const slots = 16384

// Slot returns the Cluster slot of a key without a hash tag: CRC16 (XMODEM)
// modulo 16384.
func Slot(key string) uint16 {
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
	return crc % slots
}
