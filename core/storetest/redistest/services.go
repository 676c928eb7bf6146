package redistest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Service is Redis as it is sold, or a proxy before it. It refuses what the page at its Source says.
type Service struct {
	Name   string
	Source string // a public page

	Keyless  string // the reply to a script without a key; "" if it runs
	Together string // to keys in several slots; "" if they may be together
	Unknown  string // to FUNCTION and FCALL, with % for the command's name; "" if it has them
	HangsUp  bool   // it answers a command that it does not know by closing the connection
	Servers  int    // behind its one address: a command goes to one by its first key; 0: one
}

// Services are all whose documentation or source says what they refuse. If it says that they refuse something, but not
// in what words, the words are those of Redis.
var Services = []Service{{
	Name:     "Alibaba Cloud, cluster through the proxy",
	Source:   "https://www.alibabacloud.com/help/en/redis/support/usage-of-lua-scripts",
	Keyless:  "ERR for redis cluster, eval/evalsha number of keys can't be negative or zero",
	Together: "ERR eval/evalsha command keys must be in same slot",
	Unknown:  "ERR unknown command '%'",
}, {
	Name:     "Alibaba Cloud, other commands' words",
	Source:   "https://www.alibabacloud.com/help/en/redis/user-guide/common-errors-and-troubleshooting",
	Keyless:  "ERR for redis cluster, eval/evalsha number of keys can't be negative or zero",
	Together: "ERR 'EVALSHA' command keys must in same slot",
	Unknown:  "ERR command '%' not support for your account",
}, {
	Name:     "Tencent Cloud, cluster",
	Source:   "https://www.tencentcloud.com/document/product/239/50383",
	Together: crossSlot,
}, {
	Name:     "Huawei Cloud DCS, cluster",
	Source:   "https://support.huaweicloud.com/intl/en-us/productdesc-dcs/dcs-pd-200813004.html",
	Keyless:  "ERR eval/evalsha numkeys must be bigger than zero in redis cluster mode",
	Together: crossSlot,
	Unknown:  "ERR unknown command `%`",
}, {
	Name:     "Volcengine, sharded",
	Source:   "https://www.volcengine.com/docs/6293/97276",
	Together: crossSlot,
	Unknown:  "ERR no permission to execute the command",
}, {
	Name:     "AWS ElastiCache Serverless",
	Source:   "https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/WorkingWithRedis.html",
	Together: crossSlot,
}, {
	Name:     "Azure Managed Redis, Enterprise policy",
	Source:   "https://learn.microsoft.com/en-us/azure/redis/choose-clustering-policy",
	Together: crossSlot,
}, {
	Name:     "Google Memorystore for Redis Cluster",
	Source:   "https://cloud.google.com/memorystore/docs/cluster/supported-commands",
	Together: crossSlot,
}, {
	Name:    "Upstash",
	Source:  "https://upstash.com/docs/redis/overall/rediscompatibility",
	Unknown: "ERR Command is not available: '%'. See https://upstash.com/docs/redis/overall/rediscompatibility",
}, {
	Name:    "Dragonfly",
	Source:  "https://github.com/dragonflydb/dragonfly/discussions/2981",
	Unknown: "ERR unknown command `%`",
}, {
	Name:    "KeyDB",
	Source:  "https://github.com/Snapchat/KeyDB/blob/main/src/server.cpp",
	Unknown: "ERR unknown command `%`, with args beginning with: ",
}, {
	Name:    "Envoy",
	Source:  "https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/other_protocols/redis",
	Keyless: "invalid request",
	Unknown: "ERR unknown command",
	Servers: 3,
}, {
	Name:    "Twemproxy",
	Source:  "https://github.com/twitter/twemproxy/blob/master/notes/redis.md",
	HangsUp: true,
	Servers: 3,
}, {
	Name:    "Predixy before several Sentinel groups",
	Source:  "https://github.com/joyieldInc/predixy/blob/master/src/Command.cpp",
	Keyless: "ERR wrong number of arguments",
	Unknown: "ERR unknown command '%'",
	Servers: 2,
}, {
	Name:     "redis-cluster-proxy",
	Source:   "https://github.com/RedisLabs/redis-cluster-proxy/blob/unstable/README.md",
	Keyless:  "ERR Failed to get node for query",
	Together: "ERR Cross-slot queries are not supported for this command",
	Unknown:  "ERR unsupported command `%`",
}}

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// Start starts the servers of a service, which end with the test, and what answers before them.
func (s Service) Start(t testing.TB) (proxy *Proxy, servers []*Server) {
	t.Helper()
	var targets []string
	for range max(1, s.Servers) {
		server := Start(t)
		servers, targets = append(servers, server), append(targets, server.Addr)
	}
	proxy = startProxy(t, targets, func(command []string) int {
		if keys := keysOf(command); len(keys) > 0 {
			return slot(keys[0]) % len(targets)
		}
		return 0
	})
	proxy.Instead(s.Answer)
	return proxy, servers
}

// Answer answers what a service refuses, for [Proxy.Instead].
func (s Service) Answer(command []string) (mine bool, reply []byte) {
	name, keys := command[0], keysOf(command)
	apart := func(key string) bool { return slot(key) != slot(keys[0]) }
	words := ""
	switch {
	case s.HangsUp && slices.Contains([]string{"hello", "client", "function", "fcall", "info"}, name):
		return true, nil
	case name == "function" || name == "fcall":
		words = strings.ReplaceAll(s.Unknown, "%", name)
	case strings.HasPrefix(name, "eval") && len(keys) == 0:
		words = s.Keyless
	}
	if words == "" && slices.ContainsFunc(keys, apart) {
		words = s.Together
	}
	if words == "" {
		return false, nil
	}
	return true, []byte("-" + words + "\r\n")
}

// keysOf returns the keys of the commands that a store sends.
func keysOf(command []string) []string {
	switch command[0] {
	case "eval", "evalsha", "fcall":
		n, _ := strconv.Atoi(command[2])
		return command[3 : 3+n]
	case "get", "set":
		return command[1:2]
	case "del":
		return command[1:]
	}
	return nil
}

// slot returns the slot of a key in a Redis Cluster: CRC16 of what is in its first braces, or of all.
func slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc % 16384)
}
