package redistest

import (
	"strings"
	"testing"
)

// StartSentinels starts a master, its replica and three sentinels that watch over them
// by name, and waits until they would replace the master if it went. A master that
// does not answer for half a second is down to them.
func StartSentinels(t testing.TB, name string) (master, replica *Server, sentinels []*Server) {
	t.Helper()
	master = Start(t, "repl-diskless-sync-delay 0")
	replica = Start(t, "replicaof 127.0.0.1 "+master.Port)
	for range 3 {
		s := start(t, nil, []string{
			"sentinel monitor " + name + " 127.0.0.1 " + master.Port + " 2",
			"sentinel down-after-milliseconds " + name + " 500",
			"sentinel failover-timeout " + name + " 3000",
		}, "--sentinel")
		// They tell each other of themselves every 2 s, and look for replicas every 10.
		// A version that does not know how to be quicker takes its time.
		s.Do("SENTINEL", "DEBUG", "publish-period", "100", "info-period", "100", "ask-period", "100", "tilt-period", "1000")
		sentinels = append(sentinels, s)
	}
	within(t, "the replica is level", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
	for _, s := range sentinels {
		within(t, "a sentinel knows all", func() bool {
			return strings.Contains(s.Do("INFO", "sentinel"), "status=ok,address=127.0.0.1:"+master.Port+",slaves=1,sentinels=3") &&
				strings.HasPrefix(s.Do("SENTINEL", "CKQUORUM", name), "+OK 3 ")
		})
	}
	return master, replica, sentinels
}
