// Package kubelease implements [locker.Locker] with Leases of Kubernetes, through package [register].
//
//	config.QPS = -1 // by default client-go sends five requests a second, and renewals that wait for that come too late
//	client, err := kubernetes.NewForConfig(config)
//	locks, err := kubelease.New(client.CoordinationV1(), "my-namespace")
//
// # Guarantees
//
// What package [register] says, on a store that keeps what it has confirmed: the API server's etcd syncs each write. The API server
// does not say how old a record is. So processes that have seen nothing rely on the wall clock of the last writer ([locker.AgreedClocks]), and
// minimum holds are kept by the process.
//
// Client-go's own election says of itself that it does not fence, so two may act as the leader. With package election on these locks the leader has a
// token, which its storage can check.
//
// # Losing a lock
//
// What package [register] says. All requests of a client share one connection, and by default client-go takes 45 seconds to notice that it is dead,
// in which locks of 30 seconds are lost: see the README.
//
// # Clocks
//
// What package [register] says.
//
// # Requirements
//
// Kubernetes 1.16, and the rights get, list, watch, create and patch on leases in the namespace. Without watch, waiters look once a second, and may be
// overtaken; without list, there is no List. Nobody else may change the Leases. Stop all programs before you restore etcd from a backup.
package kubelease

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
)

// The record is in an annotation, beside the lock's name. The label is for List, and for "kubectl get leases -l".
const (
	keyRecord  = "lockstile.github.io/record"
	keyName    = "lockstile.github.io/name"
	label, our = "app.kubernetes.io/managed-by", "lockstile"
)

// like says what the Store is like. An object's annotations have 256 KiB together.
var like = register.Options{Backend: "kubelease", Limit: 240 << 10}

// New returns a Locker in a namespace, and asks nobody. The client is never closed.
func New(c client.CoordinationV1Interface, namespace string) (*register.Locker, error) {
	if c == nil || !plain.MatchString(namespace) {
		return nil, fmt.Errorf("kubelease: namespace %q: it needs a client and the name of a namespace", namespace)
	}
	if asks, ok := c.RESTClient().(*rest.RESTClient); ok && asks == nil {
		return nil, errors.New("kubelease: the client is a fake one, which asks no API server: use package lockertest")
	}
	return register.New(&leases{c.RESTClient(), namespace, make(chan struct{}, most)}, like)
}

// leases is a [register.Store]. A record's version is the record itself, for no two are alike: an object's resourceVersion would come back with a
// backup of etcd.
type leases struct {
	client    rest.Interface
	namespace string
	busy      chan struct{}
}

// most is how many requests may be under way at once. A client that runs a program for its credentials waits for it, also
// when nobody waits for the request any more.
const most = 64

// send sends a request about Leases, and reads the answer into a Lease or a list. With MaxRetries the client does not send it again by itself.
//
// A request that was answered 401 or 403 had no effect, so it is sent again, up to three times: an API server that starts denies at first what it
// permits later, and a client fetches a new token when its last one was refused.
func send[T runtime.Object](ctx context.Context, s *leases, into T, verb func() *rest.Request) (T, error) {
	return driver.Within(ctx, s.busy, func() (T, error) {
		for pause := 50 * time.Millisecond; ; pause *= 4 {
			err := verb().Namespace(s.namespace).Resource("leases").MaxRetries(0).Do(ctx).Into(into)
			if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) || pause > time.Second || ctx.Err() != nil {
				return into, explained(err)
			}
			time.Sleep(pause)
		}
	})
}

// Get implements [register.Store]. The API server asks its etcd for what a majority has.
func (s *leases) Get(ctx context.Context, name string) (register.Entry, error) {
	lease, err := send(ctx, s, new(coordination.Lease), func() *rest.Request { return s.client.Get().Name(object(name)) })
	switch {
	case apierrors.IsNotFound(err) && !foreign(err):
		return register.Entry{}, nil
	case err != nil:
		return register.Entry{}, err
	case lease.Name != object(name):
		return register.Entry{}, errNoLease
	}
	return entry(lease)
}

var errNoLease = errors.New("the answer is not what was asked for: something else than the API server has given it")

// foreign reports whether an error was made of an answer that the API server has not given, such as a page of a proxy's.
func foreign(err error) bool {
	return apierrors.HasStatusCause(err, meta.CauseTypeUnexpectedServerResponse)
}

// entry returns what a Lease has. One of somebody else, such as of client-go's election, has no record.
func entry(lease *coordination.Lease) (register.Entry, error) {
	record := lease.Annotations[keyRecord]
	if record == "" {
		return register.Entry{}, driver.Refused(fmt.Errorf("the Lease %q in the namespace %q is not a lock of Lockstile, and is left as it is: use another name", lease.Name, lease.Namespace))
	}
	return register.Entry{Record: []byte(record), Version: record}, nil
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Swap implements [register.Store]. It patches, for a PUT would create a Lease that is not there. The API server takes the patch
// on the object as it is, and does so again if it has changed meanwhile.
func (s *leases) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	if !utf8.Valid(record) {
		return "", driver.Refused(errors.New("an annotation is UTF-8 text"))
	}
	next, spec := string(record), shown(record)
	write := func() *rest.Request {
		return s.client.Post().Param("fieldManager", our).Body(&coordination.Lease{Spec: spec, ObjectMeta: meta.ObjectMeta{
			Name: object(name), Labels: map[string]string{label: our}, Annotations: map[string]string{keyRecord: next, keyName: name},
		}})
	}
	if version != "" {
		path := "/metadata/annotations/" + strings.ReplaceAll(keyRecord, "/", "~1")
		patch, err := json.Marshal([]operation{{"test", path, version}, {"replace", path, next}, {"add", "/spec", spec}})
		if err != nil {
			return "", err
		}
		write = func() *rest.Request {
			return s.client.Patch(types.JSONPatchType).Name(object(name)).Param("fieldManager", our).Body(patch)
		}
	}
	lease, err := send(ctx, s, new(coordination.Lease), write)
	switch {
	case err == nil && lease.Annotations[keyRecord] == next:
		return next, nil
	case err == nil:
		return "", errNoLease // it may have been written
	case foreign(err):
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
		// Nothing was written. A test that fails looks like other refusals.
		switch e, failed := s.Get(ctx, name); {
		case failed != nil:
			return "", failed
		case e.Version == next: // something has sent it twice
			return next, nil
		case e.Version != version:
			return "", fmt.Errorf("%w: %w", register.ErrChanged, err)
		}
	}
	return "", err
}

// shown is what "kubectl get leases" shows of a record: the first holder, and for how long it may be silent. Nobody reads it back.
func shown(text []byte) (spec coordination.LeaseSpec) {
	var record struct {
		Holds []struct {
			Number, Text string
			TTL          int64
		}
	}
	if json.Unmarshal(text, &record) != nil || len(record.Holds) == 0 {
		return spec
	}
	first, now := record.Holds[0], meta.NowMicro()
	holder := strings.TrimSpace(fmt.Sprintf("token %s %s", first.Number, first.Text))
	if more := len(record.Holds) - 1; more > 0 {
		holder += fmt.Sprintf(" and %d more", more)
	}
	seconds := int32(max(first.TTL/1000, 1))
	return coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
}

// Watch implements [register.Watcher]. A watch without a resourceVersion begins with the object as it is. The API server ends it after an hour at most.
func (s *leases) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	w, err := s.client.Get().Namespace(s.namespace).Resource("leases").MaxRetries(0).VersionedParams(&meta.ListOptions{
		Watch: true, FieldSelector: "metadata.name=" + object(name),
	}, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return explained(err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, ok := <-w.ResultChan():
			lease, is := event.Object.(*coordination.Lease)
			switch {
			case !ok:
				return errors.New("the API server has ended the watch")
			case !is:
				return apierrors.FromObject(event.Object)
			case event.Type == watch.Deleted:
				tell(register.Entry{})
			default:
				e, err := entry(lease)
				if err != nil {
					return err
				}
				tell(e)
			}
		}
	}
}

// List implements [register.Lister].
func (s *leases) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	entries := make(map[string]register.Entry)
	for page := (meta.ListOptions{LabelSelector: label + "=" + our, Limit: 500}); ; {
		list, err := send(ctx, s, new(coordination.LeaseList), func() *rest.Request {
			return s.client.Get().VersionedParams(&page, scheme.ParameterCodec)
		})
		if err == nil && list.ResourceVersion == "" {
			err = errNoLease
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			lease := &list.Items[i]
			name := lease.Annotations[keyName]
			if e, err := entry(lease); err == nil && object(name) == lease.Name && strings.HasPrefix(name, prefix) {
				entries[name] = e
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return entries, nil
		}
	}
}

var (
	plain  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hashed = regexp.MustCompile(`(^|-)[0-9a-f]{32}$`)
	others = regexp.MustCompile(`[^a-z0-9]+`)
)

// object is the name of a lock's Lease: the lock's own if it is one that Kubernetes takes, or else what resembles it, with a hash.
func object(name string) string {
	if plain.MatchString(name) && !hashed.MatchString(name) {
		return name
	}
	text := others.ReplaceAllString(strings.ToLower(name), "-")
	return strings.TrimLeft(fmt.Sprintf("%.100s-%.16x", text, sha256.Sum256([]byte(name))), "-")
}

// explained marks what lasts until somebody changes a setting, and says which.
func explained(err error) error {
	switch {
	case err == nil || foreign(err):
	case apierrors.IsForbidden(err):
		return driver.Refused(fmt.Errorf("%w (locks need the rights get, list, watch, create and patch on leases)", err))
	case apierrors.IsUnauthorized(err):
		return driver.Refused(fmt.Errorf("the API server does not take the client's credentials: %w", err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return driver.Refused(err)
	case strings.Contains(err.Error(), "client rate limiter"):
		return fmt.Errorf("the client sends too few requests a second (rest.Config.QPS): %w", err)
	}
	return err
}
