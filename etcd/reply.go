package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type keyValue = mvccpb.KeyValue

// first is the first key that read i of a transaction found, or nil.
func first(resp *clientv3.TxnResponse, i int) *keyValue {
	if i >= len(resp.Responses) {
		return nil
	}
	if found := resp.Responses[i].GetResponseRange(); found != nil && len(found.Kvs) > 0 {
		return found.Kvs[0]
	}
	return nil
}

// version is how often the key that read i found was written, 0 for none.
func version(resp *clientv3.TxnResponse, i int) int64 {
	if kv := first(resp, i); kv != nil {
		return kv.Version
	}
	return 0
}
