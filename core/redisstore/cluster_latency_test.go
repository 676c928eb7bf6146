//go:build !race

package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// With RouteByLatency go-redis has a data race: the first ping of a node reads what NewClusterClient still writes.
func TestClusterByLatency(t *testing.T) {
	t.Parallel()
	words := append(documentedUser(t, "Cluster:"), replicaRights(t)...)
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		addrs = append(addrs, s.Addr)
		if reply := s.Do(words...); reply != "+OK" {
			t.Fatal(reply)
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: words[2], Password: "password", RouteByLatency: true})
	t.Cleanup(func() { _ = rdb.Close() })
	everyKind(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}), user)
}
