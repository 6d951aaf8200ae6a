package kubelease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	coordination "k8s.io/api/coordination/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/kubelease"
)

func get(t testing.TB, client kubernetes.Interface, object string) *coordination.Lease {
	t.Helper()
	lease, err := client.CoordinationV1().Leases(namespace).Get(soon(t), object, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A PUT with a resourceVersion creates a Lease that is not there. A patch does not.
func TestLateWriteDoesNotReviveADeletedLease(t *testing.T) {
	srv := start(t)
	client := connect(t, srv)
	s := kubelease.Store(client.CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	if err := client.CoordinationV1().Leases(namespace).Delete(soon(t), "a", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(soon(t), "a", version, []byte("late")); !errors.Is(err, register.ErrChanged) {
		t.Errorf("a write after the delete: %v", err)
	}
	if e, err := s.Get(soon(t), "a"); err != nil || e.Version != "" {
		t.Errorf("after it there is %+v, %v", e, err)
	}
	if _, err := s.Swap(soon(t), "a", "", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(soon(t), "a", version, []byte("late")); !errors.Is(err, register.ErrChanged) {
		t.Errorf("a write from before the delete: %v", err)
	}
}

// After etcd was restored from a backup, resourceVersions count from there again. A write from before finds one that it knows, on another record.
func TestWriteFromBeforeARestoredBackupIsRefused(t *testing.T) {
	srv := start(t)
	client := connect(t, srv)
	s := kubelease.Store(client.CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	member := srv.Etcd.Members[0]
	member.Kill()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(member.Dir())); err != nil {
		t.Fatal(err)
	}
	member.Start()
	serves := func() {
		until(t, "the API server serves", func() bool { _, err := s.Get(soon(t), "a"); return err == nil })
	}
	srv.Kill()
	srv.Start()
	serves()
	revised := func(record string) (version string, revision int) {
		t.Helper()
		e, err := s.Get(soon(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		version = swap(t, s, "a", e.Version, record)
		if _, err = fmt.Sscan(get(t, client, "a").ResourceVersion, &revision); err != nil {
			t.Fatal(err)
		}
		return version, revision
	}
	before, last := "", 0
	for i := range 100 { // more than the API server writes by itself when it starts
		before, last = revised(fmt.Sprint("before ", i))
	}
	srv.Kill()
	member.Kill()
	if err := os.RemoveAll(member.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(member.Dir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	member.Start()
	srv.Start()
	serves()
	if e, err := s.Get(soon(t), "a"); err != nil || e.Version != version {
		t.Fatalf("the backup has %+v, %v", e, err)
	}
	after := ""
	for i, revision := 0, 0; revision < last; i++ { // other writes of the API server raise the revision, too
		after, revision = revised(fmt.Sprint("after ", i))
	}
	if _, err := s.Swap(soon(t), "a", before, []byte("late")); !errors.Is(err, register.ErrChanged) {
		t.Errorf("a write from before the restored backup: %v", err)
	}
	if e, err := s.Get(soon(t), "a"); err != nil || e.Version != after {
		t.Errorf("after it there is %+v, %v", e, err)
	}
}

// A Lease of client-go's election has the same name.
func TestLeaseOfSomebodyElseIsLeftAsItIs(t *testing.T) {
	srv := start(t)
	client := connect(t, srv)
	somebody := "somebody"
	foreign, err := client.CoordinationV1().Leases(namespace).Create(soon(t), &coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: "theirs"}, Spec: coordination.LeaseSpec{HolderIdentity: &somebody},
	}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := process(t, srv)
	_, err = l.TryLock(soon(t), "theirs")
	if want := `the Lease "theirs" in the namespace "locks" is not a lock of Lockstile`; !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	s := kubelease.Store(client.CoordinationV1(), namespace)
	for _, version := range []string{"", "1"} {
		if _, err := s.Swap(soon(t), "theirs", version, []byte("late")); err == nil {
			t.Errorf("a write at version %q succeeded", version)
		}
	}
	if now := get(t, client, "theirs"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it was changed: %+v", now)
	}
	if names, err := l.List(soon(t), ""); err != nil || len(names) != 0 {
		t.Errorf("List has %v, %v", names, err)
	}
}

// A refusal says what is missing. With rights on the record alone locks work, and waiters look for themselves.
func TestRightsAreNamed(t *testing.T) {
	srv := start(t)
	admin := connect(t, srv)
	other := func(cfg *rest.Config) { cfg.BearerToken = testserver.KubernetesOther }
	l := process(t, srv, other)
	_, err := l.TryLock(soon(t), "a")
	if want := `User "other" cannot get resource "leases"`; !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	unknown := process(t, srv, func(cfg *rest.Config) { cfg.BearerToken = "a secret that nobody knows" })
	if _, err := unknown.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "Unauthorized") || strings.Contains(err.Error(), "secret") {
		t.Errorf("with another token: %v", err)
	}
	may(t, admin, "get", "create", "patch")
	until(t, "the rights are there", func() bool { _, err := l.TryLock(soon(t), "probe"); return err == nil })
	held := lock(t, l, "a")
	next := make(chan *locker.Lock, 1)
	second := process(t, srv, other)
	go func() { next <- lock(t, second, "a") }()
	waits(t, l, "a")
	unlock(t, held)
	unlock(t, <-next)
	if _, err := l.List(soon(t), ""); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "cannot list") {
		t.Errorf("List: %v", err)
	}
}

// may gives the other user rights on Leases.
func may(t testing.TB, admin kubernetes.Interface, verbs ...string) {
	t.Helper()
	role := &rbac.Role{ObjectMeta: meta.ObjectMeta{Name: "locks"}, Rules: []rbac.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}}}
	binding := &rbac.RoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: "locks"}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "locks"},
		Subjects: []rbac.Subject{{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: testserver.KubernetesOther}},
	}
	_, err := admin.RbacV1().Roles(namespace).Create(soon(t), role, meta.CreateOptions{})
	_, failed := admin.RbacV1().RoleBindings(namespace).Create(soon(t), binding, meta.CreateOptions{})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// The API server answers a test that fails and a policy that declines with the same status.
func TestRefusalOfAPolicyIsNoChange(t *testing.T) {
	srv := start(t)
	client := connect(t, srv)
	s := kubelease.Store(client.CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	fail := admission.Fail
	policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: meta.ObjectMeta{Name: "no-locks"}, Spec: admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
			Operations: []admission.OperationType{admission.Update},
			Rule:       admission.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
		}}}},
		Validations: []admission.Validation{{Expression: "object.metadata.namespace != 'locks'", Message: "no locks on Sundays"}},
	}}
	binding := &admission.ValidatingAdmissionPolicyBinding{ObjectMeta: meta.ObjectMeta{Name: "no-locks"}, Spec: admission.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "no-locks", ValidationActions: []admission.ValidationAction{admission.Deny},
	}}
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(soon(t), policy, meta.CreateOptions{})
	_, failed := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(soon(t), binding, meta.CreateOptions{})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	until(t, "the policy declines", func() bool {
		var next string
		if next, err = s.Swap(soon(t), "a", version, []byte(version+"+")); err == nil {
			version = next
		}
		return err != nil
	})
	if errors.Is(err, register.ErrChanged) || !strings.Contains(err.Error(), "no locks on Sundays") {
		t.Errorf("%v", err)
	}
	if _, err := process(t, srv).TryLock(soon(t), "b"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "no locks on Sundays") {
		t.Errorf("TryLock: %v", err)
	}
}

func TestWhatLastsIsARefusal(t *testing.T) {
	srv := start(t)
	l, err := kubelease.New(connect(t, srv).CoordinationV1(), "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), `"nowhere" not found`) {
		t.Errorf("in a namespace that is not there: %v", err)
	}
	s := kubelease.Store(connect(t, srv).CoordinationV1(), namespace)
	if _, err := s.Swap(soon(t), "a", "", []byte("\xff")); err == nil {
		t.Error("a record that is no text was written")
	}
	if _, err := s.Swap(soon(t), "a", "", []byte(strings.Repeat("x", 300<<10))); !strings.Contains(fmt.Sprint(err), "Too long") {
		t.Errorf("a record that is too large: %v", err)
	}
}

// The client sends a request again after some answers, unless it is told not to: then a write would be refused because of itself.
func TestARequestIsSentOnce(t *testing.T) {
	srv := start(t)
	var mu sync.Mutex
	sent, broken := make(map[string]int), false
	client := connect(t, srv, through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		sent[r.Method]++
		if !broken {
			return next.RoundTrip(r)
		}
		return &http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}, "Content-Type": {"text/plain"}},
			Body: io.NopCloser(strings.NewReader("try again")), Request: r,
		}, nil
	}))
	s := kubelease.Store(client.CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	mu.Lock()
	clear(sent)
	broken = true
	mu.Unlock()
	for what, do := range map[string]func(context.Context) error{
		"GET":   func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"POST":  func(ctx context.Context) error { _, err := s.Swap(ctx, "b", "", []byte("1")); return err },
		"PATCH": func(ctx context.Context) error { _, err := s.Swap(ctx, "a", version, []byte("2")); return err },
	} {
		if err := do(soon(t)); err == nil || errors.Is(err, register.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if want := map[string]int{"GET": 1, "POST": 1, "PATCH": 1}; !maps.Equal(sent, want) {
		t.Errorf("it sent %v, want %v", sent, want)
	}
}

// A waiter watches through an API server that goes away, and gets the lock from the next one.
func TestLocksOutliveTheAPIServer(t *testing.T) {
	srv := start(t)
	a, b := process(t, srv), process(t, srv)
	held := lock(t, a, "a", locker.WithTTL(time.Minute))
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, "a", locker.WithTTL(time.Minute)) }()
	waits(t, a, "a")
	srv.Kill()
	srv.Start()
	if err := held.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, held)
	got := <-next
	if got.Token() <= held.Token() {
		t.Errorf("token %d follows %d", got.Token(), held.Token())
	}
	unlock(t, got)
}

// What an uncontended lock costs, what kubectl shows, and which names Leases have.
func TestWhatIsAskedAndShown(t *testing.T) {
	srv := start(t)
	var mu sync.Mutex
	sent := make(map[string]int)
	admin := connect(t, srv)
	l := process(t, srv, through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		mu.Lock()
		sent[r.Method]++
		mu.Unlock()
		return next.RoundTrip(r)
	}))
	unlock(t, lock(t, l, "daily-report")) // the first one probes
	clear(sent)
	held := lock(t, l, "daily-report", locker.WithTTL(20*time.Second), locker.WithHolder("worker 7"))
	lease := get(t, admin, "daily-report")
	if h := lease.Spec.HolderIdentity; h == nil || *h != fmt.Sprintf("token %d worker 7", held.Token()) {
		t.Errorf("kubectl shows the holder %v", h)
	}
	if d := lease.Spec.LeaseDurationSeconds; d == nil || *d != 20 {
		t.Errorf("kubectl shows the duration %v", d)
	}
	unlock(t, held)
	if want := map[string]int{"PATCH": 2}; !maps.Equal(sent, want) {
		t.Errorf("a lock and its unlock sent %v, want %v", sent, want)
	}
	if h := get(t, admin, "daily-report").Spec.HolderIdentity; h != nil {
		t.Errorf("of a free lock kubectl shows the holder %q", *h)
	}
	for range 20 { // other programs with other names of their own write the same fields
		unlock(t, lock(t, process(t, srv, func(cfg *rest.Config) { cfg.UserAgent = held.Token().String() }), "daily-report"))
	}
	if n := len(get(t, admin, "daily-report").ManagedFields); n > 2 {
		t.Errorf("the Lease has %d managers of fields", n)
	}
	first, second := lock(t, l, "shared", locker.WithShared()), lock(t, process(t, srv), "shared", locker.WithShared())
	if h := *get(t, admin, "shared").Spec.HolderIdentity; !strings.HasPrefix(h, fmt.Sprintf("token %d ", first.SharedToken())) || !strings.HasSuffix(h, " and 1 more") {
		t.Errorf("kubectl shows the holder %q", h)
	}
	unlock(t, first)
	unlock(t, second)
	if g := l.Guarantees(); g.Exclusion != locker.PromptHolder|locker.SteadyClocks|locker.AgreedClocks || g.Tokens != 0 {
		t.Errorf("it declares %v", g)
	}
}

func TestNamesOfLeases(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for name, want := range map[string]string{
		"daily-report":                         "daily-report",
		"7":                                    "7",
		"invoices/42":                          "invoices-42-5b55c913165e516621abe41f2e4478ea",
		"A":                                    "a-559aead08264d5795d3909718cdd05ab",
		"-":                                    "3973e022e93220f9212c18d0d0c543ae",
		"ä/ö":                                  "",
		long:                                   "",
		"3973e022e93220f9212c18d0d0c543ae":     "",
		"a-559aead08264d5795d3909718cdd05ab":   "",
		"a.b":                                  "",
		"a_b":                                  "",
		strings.Repeat("/x", locker.MaxName/2): "",
	} {
		got := kubelease.Object(name)
		if want != "" && got != want {
			t.Errorf("the Lease of %q is %q, want %q", name, got, want)
		}
		if want == "" && (got == name || len(got) > 253 || strings.Trim(got, "-abcdefghijklmnopqrstuvwxyz0123456789") != "" || got[0] == '-') {
			t.Errorf("the Lease of %q is %q", name, got)
		}
	}
}

func TestListHasAllPages(t *testing.T) {
	srv := start(t)
	s := kubelease.Store(connect(t, srv).CoordinationV1(), namespace)
	const n = 1001 // three pages
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				if _, err := s.Swap(soon(t), fmt.Sprintf("jobs/%d", i), "", []byte("1")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if got, err := s.List(soon(t), "jobs/"); err != nil || len(got) != n {
		t.Errorf("%d of %d names are listed, %v", len(got), n, err)
	}
	if got, err := s.List(soon(t), "jobs/100"); err != nil || len(got) != 2 { // 100 and 1000
		t.Errorf("%v, %v", got, err)
	}
}
