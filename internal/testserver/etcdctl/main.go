// Command etcdctl is etcd's own, for tests of locks that it takes. It is a module of
// its own: what it needs is not what users of a lock need.
package main

import "go.etcd.io/etcd/etcdctl/v3/ctlv3"

func main() { ctlv3.MustStart() }
