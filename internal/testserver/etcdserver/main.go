// Command etcdserver is the etcd server, for tests. It is a module of its own:
// what a server needs is not what users of a lock need.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
