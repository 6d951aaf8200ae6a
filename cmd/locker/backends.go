package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/lockstile/locker/open"
)

const backendsHelp = `
"Exclusion leans on" is what must be true of the world for at most one holder at
a time, "tokens lean on" what must be true for tokens to increase.

"local:" without a DIR is this user's own directory: lockstile in
$XDG_RUNTIME_DIR if that belongs to this user, else lockstile-UID in $TMPDIR or
/tmp. The environment decides, and cron jobs often have another one than
terminals: where both want the same locks, give a DIR. It must exist; a relative
one counts from the working directory.

URLs take parameters, among them these; "go doc" of
github.com/lockstile/locker/open has them all:
  redis, redlock, etcd  "?prefix=TEXT" goes before every name
  redis                 "?replicas=N" waits for N replicas on every lock
  etcds                 "?cacert=FILE", "?cert=FILE&key=FILE" as with etcdctl
  zk                    "?session_timeout=10s"; --ttl must not be less
  postgres              "?schema=ensure" makes the tables: once for a database
`

type backendsCommand struct{ plain }

func (backendsCommand) do() (int, error) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "URL\tBACKEND\tEXCLUSION LEANS ON\tTOKENS LEAN ON\tFAIR\tFREES A DEAD HOLDER")
	for _, s := range open.Schemes() {
		fair := "no"
		if s.Guarantees.Fair {
			fair = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s\t%v\n", s.Form, s.About, s.Guarantees.Exclusion, s.Guarantees.Tokens, fair, s.Guarantees.Release)
	}
	return output(w.Flush())
}
