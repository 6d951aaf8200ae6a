package etcd

import (
	"errors"
	"fmt"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// usable returns an error if what the client asks and what it hears do not belong
// together: locks are put with its KV, seen to go by its Watcher and listed by its Lease.
func usable(client *clientv3.Client) error {
	if client.ActiveConnection() == nil {
		return errors.New("etcd: the client has no connection: make it with clientv3.New")
	}
	kv := around("KV", client.KV)
	for _, part := range []struct {
		name string
		is   any
	}{{"KV", client.KV}, {"Lease", client.Lease}, {"Watcher", client.Watcher}} {
		switch around(part.name, part.is) {
		case unknown:
			return fmt.Errorf("etcd: the client's %s is a %T, or has one that is not its own: use interceptors in its Config", part.name, part.is)
		case kv:
		default:
			return fmt.Errorf("etcd: the client's KV is a %T and its %s a %T: put the same namespace around its KV, Lease and Watcher", client.KV, part.name, part.is)
		}
	}
	return nil
}

const unknown = -1

// around counts the namespaces around a part of a client, or returns unknown if that is
// not the client's own.
func around(name string, part any) (n int) {
	for v := reflect.ValueOf(part); v.Kind() == reflect.Pointer && !v.IsNil(); n++ {
		switch v = v.Elem(); v.Type().PkgPath() {
		case ownPackage:
			return n
		case ownPackage + "/namespace":
			if v = v.FieldByName(name); v.Kind() == reflect.Interface { // that it embeds
				v = v.Elem()
			}
		default:
			return unknown
		}
	}
	return unknown
}

const ownPackage = "go.etcd.io/etcd/client/v3"
