package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

var leads = regexp.MustCompile(`leads, token (\d+)\n`)

// term returns the token of a replica's so manieth term, once it leads.
func term(t *testing.T, p *process.Process, n int) (token uint64) {
	t.Helper()
	p.Wait("it leads", func() bool { return len(leads.FindAllString(p.Said(), -1)) >= n })
	token, err := strconv.ParseUint(leads.FindAllStringSubmatch(p.Said(), -1)[n-1][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// anyLeader waits until one of the replicas leads for the first time.
func anyLeader(t *testing.T, replicas []*process.Process) (leader *process.Process, others []*process.Process) {
	t.Helper()
	for end := time.Now().Add(process.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, p := range replicas {
			if p.Count("leads, token") > 0 {
				return p, append(append(others, replicas[:i]...), replicas[i+1:]...)
			}
		}
	}
	t.Fatalf("nobody leads: %s", replicas[0].Said())
	return nil, nil
}

func TestOneReplicaLeadsAndAnotherWhenItIsDeadPausedCutOffOrStopped(t *testing.T) {
	t.Parallel()
	store := testserver.Etcd(t, 1).Members[0].Addr()
	var replicas []*process.Process
	networks := make(map[*process.Process]*netproxy.Proxy)
	for range 3 {
		network, err := netproxy.Listen(store)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(network.Close)
		p := start(t, []string{"LOCKER_BACKEND=etcd://" + network.Addr()}, "leader")
		networks[p] = network
		replicas = append(replicas, p)
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
	leading(term(t, dead, 1))
	for _, p := range replicas {
		p.Says(fmt.Sprintf("the leader is \"process %d on ", dead.Cmd.Process.Pid))
	}
	dead.Signal(syscall.SIGKILL)

	paused, replicas := anyLeader(t, replicas)
	leading(term(t, paused, 1))
	paused.Pause()

	cutOff := replicas[0]
	leading(term(t, cutOff, 1))
	paused.Signal(syscall.SIGCONT)
	paused.Says("leads no longer: lock \"leader\" lost")
	if n := paused.Count("leads, token"); n != 1 {
		t.Errorf("the replica that was paused leads while another does:\n%s", paused.Said())
	}
	networks[cutOff].Cut()
	cutOff.Says("leads no longer: lock \"leader\" lost")
	leading(term(t, paused, 2))
	networks[cutOff].Heal()

	stopped := paused
	stopped.Signal(syscall.SIGTERM)
	stopped.Ends(0)
	leading(term(t, cutOff, 2))
	cutOff.Signal(syscall.SIGTERM)
	cutOff.Ends(0)
	stopped.Says("leads no longer: ")
}
