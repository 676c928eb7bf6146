package redisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
)

// A nil pointer in an interface is a nil client, and is said to be one.
func TestANilPointerIsANilClient(t *testing.T) {
	var single *redis.Client
	var cluster *redis.ClusterClient
	for name, rdb := range map[string]redis.UniversalClient{"nil": nil, "a client": single, "a cluster's": cluster} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "the client is nil") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			redisstore.New(rdb, nil)
		}()
	}
}
