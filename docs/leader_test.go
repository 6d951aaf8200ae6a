package docs_test

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/lab/testserver"
)

var leads = regexp.MustCompile(`leads, token (\d+)\n`)

// term returns the token of the replica's so manieth term, once it leads.
func (p *process) term(n int) (token uint64) {
	p.t.Helper()
	p.wait("it leads", func() bool { return len(leads.FindAllString(p.said.String(), -1)) >= n })
	token, err := strconv.ParseUint(leads.FindAllStringSubmatch(p.said.String(), -1)[n-1][1], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// anyLeader waits until one of the replicas leads for the first time.
func anyLeader(t *testing.T, replicas []*process) (leader *process, others []*process) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, p := range replicas {
			if p.count("leads, token") > 0 {
				return p, append(append(others, replicas[:i]...), replicas[i+1:]...)
			}
		}
	}
	t.Fatalf("nobody leads: %s", replicas[0].said)
	return nil, nil
}

func TestOneReplicaLeadsAndAnotherWhenItIsDeadPausedOrStopped(t *testing.T) {
	t.Parallel()
	env := []string{"LOCKER_BACKEND=etcd://" + testserver.Etcd(t, 1).Members[0].Addr()}
	var replicas []*process
	for range 3 {
		replicas = append(replicas, start(t, env, "leader"))
	}
	terms := []uint64{0}
	leading := func(token uint64) {
		t.Helper()
		if last := terms[len(terms)-1]; token <= last {
			t.Errorf("a term has the token %d after %d", token, last)
		}
		terms = append(terms, token)
	}

	dead, replicas := anyLeader(t, replicas)
	leading(dead.term(1))
	dead.signal(syscall.SIGKILL)

	paused, replicas := anyLeader(t, replicas)
	leading(paused.term(1))
	paused.pause()

	stopped := replicas[0]
	leading(stopped.term(1))
	paused.signal(syscall.SIGCONT)
	paused.says("leads no longer: lock \"leader\" lost")
	if n := paused.count("leads, token"); n != 1 {
		t.Errorf("the replica that was paused leads while another does:\n%s", paused.said)
	}

	stopped.signal(syscall.SIGTERM)
	stopped.says("leads no longer: ")
	stopped.ends(0)
	leading(paused.term(2))
	paused.signal(syscall.SIGTERM)
	paused.ends(0)
}
