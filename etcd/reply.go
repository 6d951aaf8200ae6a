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

// modified is the revision at which the key that read i found was last written, 0
// for none.
func modified(resp *clientv3.TxnResponse, i int) int64 {
	if kv := first(resp, i); kv != nil {
		return kv.ModRevision
	}
	return 0
}
