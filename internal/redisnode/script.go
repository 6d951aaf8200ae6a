package redisnode

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by it; no secret hangs on it
	"embed"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lockstile/locker/internal/redisclient"
)

// script is a Lua script and the hash that the server knows it by. Both are strings, as
// an argument of a command has them: so they are made once.
type script struct{ text, hash any }

// confirmed reports whether replicas must confirm what the script did: that is
// so for grants, renewals and what keeps a lock taken, not for what only gives back.
func (s *script) confirmed() bool {
	return s == acquire || s == resume || s == renew || s == renewEntry || s == keepTaken
}

// call begins a command. It names the script by its hash. A server that has restarted,
// or has taken another's place, does not know the hash, and only its answer makes us
// send the text. What gives back has to work though no answer ever comes: it is sent as
// text at once.
func (s *script) call(args []any) []any {
	switch s {
	case release, keepTaken, withdraw, force:
		return append(args, "eval", s.text)
	}
	return append(args, "evalsha", s.hash)
}

// Tokens is how many numbers a grant has.
const Tokens = 64

// many is how many waiters a script looks at. The server does nothing else while a script
// runs, and 10,000 may wait. The next script goes on.
const many = 300

// endOfTokens is the first number that scripts count past: see lua/acquire.lua.
const endOfTokens = 1 << 53

// files are the scripts, and what they include.
//
//go:embed lua
var files embed.FS

var (
	acquire         = newScript("acquire", "alone")
	acquireOfQuorum = newScript("acquire", "quorum") // for a node that is one of several
	resume          = newScript("resume", "alone")
	raise           = newScript("raise", "")
	release         = newScript("release", "")
	keepTaken       = newScript("keep_taken", "")
	withdraw        = newScript("withdraw", "")
	force           = newScript("force", "")
	renew           = newScript("renew", "")
	renewEntry      = newScript("renew_entry", "")
	whyLost         = newScript("why_lost", "")
	keepCounter     = newScript("keep_counter", "")
	inspect         = newScript("inspect", "")
)

// newScript returns the script in a file. ROLE stands for the folder of what a node does otherwise
// alone than as one of several.
func newScript(file, role string) *script {
	return scriptOf(luaOf(file, strings.NewReplacer("TOKENS", strconv.Itoa(Tokens), "MANY", strconv.Itoa(many), "ROLE", role)))
}

func scriptOf(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}

// luaOf returns a file as the server gets it, with what it includes, and without what is there for
// readers: a server hashes the text of what is not sent by its hash.
func luaOf(file string, constants *strings.Replacer) string {
	if file == "since7" {
		return redisclient.Since7
	}
	lua, err := files.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err) // each script is made when the program starts
	}
	var text strings.Builder
	for line := range strings.Lines(constants.Replace(string(lua))) {
		line = strings.TrimSpace(line)
		switch other, is := strings.CutPrefix(line, "--- include "); {
		case is:
			text.WriteString(luaOf(strings.Trim(other, `"`), constants))
		case line != "" && !strings.HasPrefix(line, "--"):
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}
