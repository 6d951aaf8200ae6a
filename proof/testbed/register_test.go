package testbed_test

import (
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// The subject cannot ask the backend, which asks a server.
func TestSubjectOfNATSDeclaresWhatTheBackendDoes(t *testing.T) {
	t.Parallel()
	sub := subject(t, "natskv")
	lab := new(matrix.Lab)
	defer lab.Close()
	err := lab.Try(func() {
		sys, err := sub.Start(lab)
		if err != nil {
			lab.Fatalf("%w", err)
		}
		url, _, err := sys.Client()
		if err != nil {
			lab.Fatalf("%w", err)
		}
		l, err := testbed.Open(t.Context(), url)
		if err != nil {
			lab.Fatalf("%w", err)
		}
		if got := l.Guarantees(); got != sub.Guarantees {
			t.Errorf("the backend declares %v, and its subject %v", got, sub.Guarantees)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
