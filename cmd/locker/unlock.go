package main

import (
	"context"
	"fmt"

	"github.com/lockstile/locker/open"
)

var unlockCommand = command{
	name:  "unlock",
	form:  "NAME",
	about: "take a lock from whoever holds it (needs --force)",
	more: `
Only for a holder that is known to be dead or stuck. A holder that lives goes on
believing until its next renewal, so for that time two may hold the lock. The
next token is greater all the same, and a guarded storage refuses the old one.
`,
	takes: takesName,
	flags: []string{"b", "force"},
	do:    unlock,
}

func unlock(in invocation) (int, error) {
	if !in.force {
		return exitUsage, fmt.Errorf("unlock: a lock is given back by its holder; to take %q from a holder that is dead or stuck, "+
			"add --force: one that lives may go on for a while without knowing", in.name)
	}
	return withBackend(in, func(ctx context.Context, b open.Backend) error {
		broken, err := b.Break(ctx, in.name)
		if err != nil {
			return err
		}
		found := "was not held"
		if broken {
			found = "was taken from its holder"
		}
		_, err = answer(fmt.Sprintf("%q %s\n", in.name, found))
		return err
	})
}
