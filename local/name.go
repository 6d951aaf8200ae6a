package local

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

const (
	suffix = ".lock"

	// longest leaves room under the 255 bytes that file systems allow, and
	// under the 143 that encrypted ones (eCryptfs) do.
	longest = 120
)

// fileName returns the name of the file of a lock. Different locks have different
// files, on file systems that ignore case as well: lower case letters, digits and "._-"
// stay, every other byte becomes "%xx". No lock's file begins with a dot: such names are
// for our temporary files, hidden, or directories.
//
// A name that would be too long becomes a hash. No other name begins with "%sha256":
// there, two hexadecimal digits follow each "%".
func fileName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if b.Len() > longest {
		return fmt.Sprintf("%%sha256-%x", sha256.Sum256([]byte(name))) + suffix
	}
	return b.String() + suffix
}
