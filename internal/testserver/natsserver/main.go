// Command natsserver is the NATS server, for tests. It is a module of its own:
// what a server needs is not what users of a lock need.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run takes the arguments of nats-server, and returns when the server has ended.
func run() error {
	flags := flag.NewFlagSet("natsserver", flag.ExitOnError)
	usage := func() {
		flags.PrintDefaults()
		os.Exit(2)
	}
	opts, err := server.ConfigureOptions(flags, os.Args[1:], server.PrintServerAndExit, usage, usage)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}
