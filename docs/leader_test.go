package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/lab/netproxy"
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

func TestOneReplicaLeadsAndAnotherWhenItIsDeadPausedCutOffOrStopped(t *testing.T) {
	t.Parallel()
	store := testserver.Etcd(t, 1).Members[0].Addr()
	var replicas []*process
	networks := make(map[*process]*netproxy.Proxy)
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
	leading(dead.term(1))
	for _, p := range replicas {
		p.says(fmt.Sprintf("the leader is \"process %d on ", dead.cmd.Process.Pid))
	}
	dead.signal(syscall.SIGKILL)

	paused, replicas := anyLeader(t, replicas)
	leading(paused.term(1))
	paused.pause()

	cutOff := replicas[0]
	leading(cutOff.term(1))
	paused.signal(syscall.SIGCONT)
	paused.says("leads no longer: lock \"leader\" lost")
	if n := paused.count("leads, token"); n != 1 {
		t.Errorf("the replica that was paused leads while another does:\n%s", paused.said)
	}
	networks[cutOff].Cut()
	cutOff.says("leads no longer: lock \"leader\" lost")
	leading(paused.term(2))
	networks[cutOff].Heal()

	stopped := paused
	stopped.signal(syscall.SIGTERM)
	stopped.ends(0)
	leading(cutOff.term(2))
	cutOff.signal(syscall.SIGTERM)
	cutOff.ends(0)
	stopped.says("leads no longer: ")
}
