package kubelease

import (
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/lockstile/locker/register"
)

// What the tests need of the Store itself.
var (
	Object = object
	Like   = like
)

// Store returns the Store in a namespace.
func Store(c client.CoordinationV1Interface, namespace string) interface {
	register.Store
	register.Watcher
	register.Lister
} {
	return &leases{c.RESTClient(), namespace, make(chan struct{}, most)}
}
