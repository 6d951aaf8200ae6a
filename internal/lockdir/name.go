// Package lockdir has what the backends share that keep locks as files in a directory: what a lock's file is called, and which
// directories and files will do.
package lockdir

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Suffix is how the name of a lock's file ends, in package local as in package register/file. So neither takes the other's
// lock of the same name for free: it finds a file that is none of its own.
const Suffix = ".lock"

// longest leaves room under the 255 bytes that file systems allow, and
// under the 143 that encrypted ones (eCryptfs) do.
const longest = 120

// FileName returns the name of the file of a lock. Different locks have different
// files, on file systems that ignore case as well: lower case letters, digits and "._-"
// stay, every other byte becomes "%xx". No lock's file begins with a dot: such names are
// for our temporary files, hidden, or directories.
//
// A name that would be too long becomes a hash. No other name begins with "%sha256":
// there, two hexadecimal digits follow each "%".
func FileName(name string) string {
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
		return fmt.Sprintf("%%sha256-%x", sha256.Sum256([]byte(name))) + Suffix
	}
	return b.String() + Suffix
}
