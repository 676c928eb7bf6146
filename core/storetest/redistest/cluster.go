package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// StartCluster starts a Redis Cluster of three masters and three replicas, and waits
// until it serves all slots. The masters are the first three, and the replica of each is
// the third after it.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	const masters, nodes, slots = 3, 6, 16384
	servers := make([]*Server, nodes)
	for i := range servers {
		servers[i] = Start(t, "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-node-timeout 5000", "repl-diskless-sync-delay 0")
	}
	for i, s := range servers {
		s.ok("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		if i < masters {
			s.ok("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		}
		if i > 0 {
			s.ok("CLUSTER", "MEET", "127.0.0.1", servers[0].Port)
		}
	}
	within(t, "the nodes know each other", func() bool {
		for _, s := range servers {
			if !strings.Contains(s.Do("CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d\r\n", nodes)) {
				return false
			}
		}
		return true
	})
	for i, s := range servers[masters:] {
		master := servers[i].Do("CLUSTER", "MYID")
		within(t, "a replica knows its master", func() bool { return s.Do("CLUSTER", "REPLICATE", master) == "+OK" })
	}
	within(t, "the cluster serves", func() bool {
		for i, s := range servers {
			if !strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") {
				return false
			}
			if i >= masters && !strings.Contains(s.Do("INFO", "replication"), "master_link_status:up") {
				return false
			}
			// Each must know what the others are, for clients to learn it from any.
			if strings.Count(s.Do("CLUSTER", "NODES"), "slave") != nodes-masters {
				return false
			}
		}
		return true
	})
	return servers
}

func (s *Server) ok(words ...string) {
	s.t.Helper()
	if reply := s.Do(words...); reply != "+OK" {
		s.t.Fatalf("%s: %s", words, reply)
	}
}

// within waits until what is said holds, no longer than patience.
func within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it took longer than %s until %s", patience, what)
		}
	}
}
