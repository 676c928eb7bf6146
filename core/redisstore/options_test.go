package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

func TestOptions(t *testing.T) {
	rdb := connect(t, &redis.Options{Addr: closed})
	for _, tc := range []struct {
		opts *redisstore.Options
		want string // what the sentence names
	}{
		{&redisstore.Options{Prefix: "a{b"}, `"a{b"`},
		{&redisstore.Options{Prefix: "{}"}, "letters"},
		{&redisstore.Options{Prefix: "a b"}, `"a b"`},
		{&redisstore.Options{Prefix: "é"}, "letters"},
		{&redisstore.Options{Prefix: "a\n"}, "letters"},
		{&redisstore.Options{Prefix: "*"}, "letters"},
		{&redisstore.Options{Prefix: strings.Repeat("a", 65)}, "64"},
		{&redisstore.Options{Timeout: -1}, "1ms"},
		{&redisstore.Options{Timeout: time.Millisecond - 1}, "999.999µs"},
		{&redisstore.Options{Timeout: time.Minute + 1}, "1m0s"},
	} {
		func() {
			defer func() {
				say := fmt.Sprint(recover())
				if !strings.HasPrefix(say, "redisstore: Options.") || !strings.Contains(say, tc.want) {
					t.Errorf("%+v: %s", tc.opts, say)
				}
			}()
			redisstore.New(rdb, tc.opts)
			t.Errorf("%+v is taken", tc.opts)
		}()
	}
	for _, o := range []redisstore.Options{
		{}, {Prefix: strings.Repeat("a", 64)}, {Prefix: "aZ09._-:"}, {Timeout: time.Millisecond}, {Timeout: time.Minute},
	} {
		redisstore.New(rdb, &o)
	}
	func() {
		defer func() {
			if say := fmt.Sprint(recover()); !strings.Contains(say, "redis.NewClient") {
				t.Errorf("no client: %s", say)
			}
		}()
		redisstore.New(nil, nil)
	}()
}
