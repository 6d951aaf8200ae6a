package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
)

const backendsHelp = `
"Exclusion assumes" is what must be true of the world for at most one holder at
a time. "Tokens assume" is what must be true for tokens to increase.

"local:" without a DIR is this user's own directory: lockstile in
$XDG_RUNTIME_DIR if that belongs to this user, else lockstile-UID in $TMPDIR or
/tmp. A cron job often has other values for these variables than a terminal, and
then another directory. So name a DIR where both want the same locks. It must
exist. A relative DIR counts from the working directory. Locks in "file:DIR" have
a --ttl and stay when their process ends. Those in "local:DIR" end with it.

URLs take parameters. These are some of them, and "go doc" of
github.com/lockstile/locker/open has them all:
  redis, redlock, etcd  "?prefix=TEXT" goes before every name
  redis                 "?replicas=N" waits for N replicas on every lock
  rediss, redlocks, etcds
                        "?cacert=FILE", "?cert=FILE&key=FILE", read for each connection
  zk                    "?session_timeout=10s"; --ttl must not be less
  postgres              "?schema=ensure" makes the tables: once for a database
`

type backendsCommand struct {
	plain
	json bool
}

func (c *backendsCommand) flags(fs flagSet) { fs.json(&c.json) }

func (c *backendsCommand) do() (int, error) {
	if c.json {
		return c.printJSON()
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "URL\tBACKEND\tEXCLUSION ASSUMES\tTOKENS ASSUME\tFAIR\tFREES A DEAD HOLDER\tOTHER KINDS")
	for _, s := range dial.Schemes() {
		fair := "no"
		if s.Guarantees.Fair {
			fair = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s\t%v\t%s\n", s.Form, s.About, s.Guarantees.Exclusion, s.Guarantees.Tokens, fair, s.Guarantees.FreedBy, otherKinds(s.Guarantees))
	}
	return output(w.Flush())
}

func (c *backendsCommand) printJSON() (status int, err error) {
	for _, s := range dial.Schemes() {
		g := s.Guarantees
		if status, err = answerJSON(struct {
			URL          string   `json:"url"`
			About        string   `json:"about"`
			Exclusion    []string `json:"exclusion_assumes"`
			Tokens       []string `json:"tokens_assume"`
			Fair         bool     `json:"fair"`
			Release      string   `json:"frees_a_dead_holder"`
			KeepsMinHold bool     `json:"keeps_min_hold"` // also when the process ends
			Shared       bool     `json:"shared"`
			Slots        bool     `json:"slots"`
		}{s.Form, s.About, words(g.Exclusion), words(g.Tokens), g.Fair, g.FreedBy.String(), g.KeepsMinHold, g.Shared, g.Slots}); err != nil {
			break
		}
	}
	return status, err
}

// otherKinds are the kinds of locks beside the exclusive one.
func otherKinds(g locker.Guarantees) string {
	switch {
	case g.Shared && g.Slots:
		return "shared, slots"
	case g.Shared:
		return "shared"
	case g.Slots:
		return "slots"
	}
	return "-"
}

// words are the assumptions one by one. Of none there is an empty list.
func words(a locker.Assumptions) []string {
	if a == 0 {
		return []string{}
	}
	return strings.Split(a.String(), ", ")
}
