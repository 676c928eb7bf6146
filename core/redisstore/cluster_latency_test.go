//go:build !race

package redisstore_test

import "github.com/redis/go-redis/v9"

// With RouteByLatency go-redis has a data race: the first ping of a node reads what NewClusterClient still writes.
func init() { fromReplicas = append(fromReplicas, redis.ClusterOptions{RouteByLatency: true}) }
