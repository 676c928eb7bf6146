// Package redisstore keeps the state of limits in Redis, so that the processes of a fleet share them. It makes
// the same decisions as memorystore. A decision takes one round trip and uses Redis's own clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// # I want to
//
//   - start: the two lines above, and [Store.Connect] before the program serves; see "Client"
//   - know what users may do while Redis is down: core.Fallback, core.FailOpen, and "Faults"
//   - use a Cluster, a cloud service or a proxy: "Services and proxies"
//   - give the store a Redis user and memory settings: "Server"
//   - let two applications use one Redis: [Options].Prefix; see "Keys"
//   - decide about a user and their organization on a Cluster: [Options].Tag
//   - keep names of users out of Redis: [Options].Secret
//   - relieve one busy key: core.Limit.Leased
//   - read the history of a SlidingWindow: [Store.History]
//   - run the library of functions without giving the program the permission: "Functions and scripts"
//   - test: miniredis; see "Testing"
//
// # Client
//
// Any redis.UniversalClient works: a single server, Sentinel, Cluster or Ring, of Redis 6.2, 7, 8 or Valkey 8.
// These options of the client matter:
//
//	ContextTimeoutEnabled: true
//	    If a reply is lost, the client gives up the connection after three of the store's timeouts.
//	    Without this option it holds the connection for its ReadTimeout, 5 s by default.
//	ReadTimeout: 200 * time.Millisecond, for a Cluster
//	    If a master hangs, its users wait for 0.15 s after the election; with the default 2 to 4 s.
//	ConnMaxLifetime: time.Minute, with min-replicas-to-write
//	    A client keeps its connections to a master that is cut off and answers NOREPLICAS.
//	ConnMaxIdleTime: shorter than the idle timeout of the server or of a balancer before it
//	    With TLS the client does not notice that the server has closed an idle connection.
//	PoolSize: at least 10, if the response time is more than half of Options.Timeout
//	    Otherwise calls wait for each other.
//
// A *redis.Client sends the decisions of many callers in one command, unless what it is connected to wants each
// alone: see "Services and proxies". Do not give the store an AutoPipeliner: it ignores deadlines. Hooks, push
// handlers and a Dialer must heed deadlines.
//
// # Services and proxies
//
// [Store.Connect], or else the first call, finds out what a service or a proxy can do, by commands that charge
// nothing. "Together" says that one command decides for many callers, which takes the least CPU time. "Alone" says
// that each decision has a command and occupies a connection until it is answered: give the client a PoolSize that
// is enough for that. With functions or scripts the decisions are the same.
//
//	service or proxy                       decisions are sent           set
//	Alibaba Cloud, cluster by the proxy    alone, as scripts            script_check_enable 0, if Connect says
//	                                                                    that the scripts are refused
//	Tencent Cloud, cluster                 alone
//	Huawei Cloud DCS, cluster by the       alone, as scripts
//	  proxy; Volcengine, sharded
//	AWS ElastiCache, Serverless or         alone                        use a ClusterClient
//	  cluster mode; Google Memorystore
//	  Cluster; Alibaba Cloud direct
//	Azure Managed Redis                    alone                        use a ClusterClient, with the OSS policy
//	Upstash                                together, as scripts where
//	                                       it has no functions
//	Dragonfly, KeyDB                       together, as scripts         Dragonfly also works with NewCellStore
//	Envoy                                  alone, as scripts            enable_hashtagging: true
//	Predixy                                alone, as scripts            HashTag "{}"
//	Redis Cluster Proxy                    alone, as scripts
//	Twemproxy                              not at all: it closes the connection when go-redis says HELLO
//	Oracle OCI Cache, sharded              not at all: it has neither functions nor scripts
//	Azure Cache for Redis                  not at all: it is Redis 6.0, and 6.2 is needed
//
// This is what their documentation or source says, and what tests show with proxies that refuse the same in front of a
// real Redis: package redistest has each with its source. It has not been tried on the services.
//
// Alibaba Cloud's proxy may read scripts, and refuse one in which a key is not written as KEYS[1]. It is not known
// whether it refuses these, whose keys are arguments of Lua functions. With script_check_enable 0 it does not read
// them. They use no keys but those of the command, which is what it checks.
//
// Envoy, and Predixy before several groups, send a command to one of their servers by its first key, and do not look at
// the others. Call Connect before the program serves: until the store knows that, a user may have states on two
// servers. With [Options].NoFunctions only Connect finds it out.
//
// # Failure
//
// [Options].Timeout bounds every call, whatever the client's own options are. A call without an answer is an
// error: [ErrTimeout], or the error of the client or of Redis. No charge is made twice: the client's retries
// are disabled for these commands. A bare Store fails closed. To change that, wrap it in core.Fallback or
// core.FailOpen.
//
// If the caller's context ends before its charge is sent, the caller is not charged. After that it may be. If
// the answer to a charge of core.InFlight is lost, the store releases its slots in the background. It repeats
// that for a minute, or until the lease ends, because the charge may be late.
//
// Calls fail until the first connections are open. [Store.Connect] opens them before the program serves, and
// returns what is wrong with the server. After Connect, with a timeout of 50 ms, every call is
// answered as long as Redis responds within 40 ms.
//
// If a call has no answer, the store opens a new connection, and sends no call until that is answered. So
// during an outage callers get the error at once. If only the old connections are dead, because a NAT or a
// balancer has forgotten them, Redis decides again within half a second.
//
// # Faults
//
// These faults are tested on real Redis under load, with core.Fallback and one process. With n processes, "one
// quota" is n quotas. Users get no errors, and no call takes longer than the timeout. Redis decides again
// within half a second of its return, unless the table says otherwise.
//
//	fault                                users get                            more than the limit, in one period
//	killed, loses its data               the process's limit, then a new one  two quotas
//	not running at start-up, stopped,    the process's limit                  one quota
//	  hung
//	connections cut, or forgotten by a   the process's limit                  one quota
//	  NAT; replies late, lost or corrupt
//	out of memory, READONLY, LOADING,    the process's limit                  one quota
//	  NOAUTH, WRONGPASS, NOPERM
//	a stall shorter than two timeouts    the process's limit for the calls    one quota
//	                                     that time out
//	keys evicted                         Redis's answers                      one quota per such key
//	a key with a foreign value           the process's limit for that user    one quota; another when it is
//	                                                                          deleted
//	FUNCTION FLUSH, SCRIPT FLUSH         Redis's answers                      nothing
//	Sentinel's master dies               the process's limit until the        one quota, and what had not
//	                                     election, and 0.3 s                  been replicated
//	a Cluster's master dies or hangs     the same, its users only             the same
//	a Cluster's master restarts          the process's limit, its users       one quota; two if it loses
//	  before an election                 only, until 2.3 s after its return:  its data
//	                                     it refuses for two seconds
//	a Cluster's slot moves               Redis's answers; with several        one quota, with several limits
//	                                     limits or a BanPolicy the process's  or a BanPolicy
//	                                     limit until it has moved
//	a Ring's server dies                 the process's limit, then a new one  two quotas
//	                                     on the other servers; its users only
//	a process with leases dies           Redis's answers                      nothing; what it held is lost for
//	                                                                          a period
//	Redis's clock steps                  no refusal longer than one period    if the clock steps ahead, as
//	                                     and a second                         much as the step
//
// A master that is cut off still admits users who reach it, unless it has min-replicas-to-write 1. If one
// server of a Cluster or Ring fails, core.Fallback, core.FailOpen and core.Shadow stop asking only that one. A
// Cluster needs cluster-require-full-coverage no, or all its users wait.
//
// Use TLS across a network that you do not trust.
//
// # Keys
//
// A key is tailcut:{user}:action:limit. Examples are
//
//	tailcut:{alice}:reply:sliding:1m
//	tailcut:{alice}:like:funnel:15:1/1h
//
// All of a user's keys are in one cluster slot, and users cannot choose it. Bytes that are not printable or
// have a meaning in a key are escaped as %XX. A user or action of more than 128 bytes is replaced by ~ and its
// digest. So any two users have different keys.
//
// Applications with one [Options].Prefix share the limits, and bans, of users and actions of the same name.
// Options.Secret keeps users' names out of Redis. Options.Tag has users of one organization in one slot, so
// that core.All decides about them in one step. A user whose tag changes has new keys, and so the full quota
// again.
//
// The key of a limit expires when the limit's full quota is available again, that of a CalendarWindow a second later.
// That of an InFlight expires when its last lease ends, and that of a ban policy or of a bucket with Initial with
// ForgetAfter. A bucket or funnel with refunds is kept a little longer.
//
// # Memory in Redis
//
// A key takes 88 bytes (funnels and buckets) to 120 (counts), a SlidingWindow 200 bytes with 5 actions and 1.3
// MB with 10,000, an InFlight the same, and a MovingWindow 8.4 bytes for each action. Add 60 for the expiry and
// the table.
//
// # Server
//
// If Redis evicts a key, its user has the full quota again. So give the limits a separate server with
//
//	maxmemory-policy noeviction
//
// and a Redis user with no more permissions than needed:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +fcall +function|list +evalsha +eval +time +get +set +del +ping +getrange +setrange +strlen +zadd +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +zscore +pexpireat +hello +client|setname
//
// Redis 6.2 does not know +fcall and +function|list: leave them out. Sentinel needs nothing more. Other
// clients, and those of a database other than 0, also need
//
//	Cluster: +cluster|slots +asking
//	Cluster with ReadOnly, RouteByLatency or RouteRandomly: also +readonly +command
//	DB: +select
//
// With +info the store checks the eviction policy in Connect, after 100 answers and then at most every ten
// minutes. It logs a warning if limits can be evicted.
//
// Without persistence every user has the full quota again after a restart of Redis. For quotas of a day or a
// month set appendonly yes: a crash then forgets about a second of actions.
//
// # Functions and scripts
//
// From Redis 7.0 on, the Lua that decides is a library of Redis Functions, which stays loaded. [Store.Connect],
// or else the first call, finds out whether a server has it. Without it, as on Redis 6.2, miniredis and many
// services and proxies, the same Lua runs as a script, which takes up to twice the CPU time. The store looks
// again every minute. With [Options].NoFunctions it uses scripts on every server.
//
// The store loads the library, if it may. The user above may not: whoever may load libraries can replace that
// of another application. On such a server an administrator loads it:
//
//	go run github.com/tailcut/tailcut/core/redisstore/library | redis-cli -x FUNCTION LOAD
//
// Without that scripts run. The store does not call a library whose code is not its own. It looks every ten
// minutes, so give no application +function|load on a server that others use.
//
// Programs of two versions work side by side. The library of an old one stays until you delete it:
//
//	redis-cli FUNCTION LIST LIBRARYNAME 'tailcut_*'
//	redis-cli FUNCTION DELETE tailcut_0123456789abcdef
//
// # CL.THROTTLE
//
// If a server has CL.THROTTLE, [NewCellStore] makes a store that uses it in place of the Lua, for limiters of one
// Funnel or Throttle.
//
// # Cached refusals
//
// As long as Redis would refuse an action again, the store repeats the refusal without asking Redis
// (core.SourceCache). It notices a change on the same Store at once, and a change by another process or an
// outage within a second. It asks Redis each time in these cases:
//
//   - the decision is by core.All
//   - the cost is above one, and the user is not banned
//   - a limit or a BanPolicy records the refusal
//
// With [Options].NoRefusalCache it always asks.
//
// # Leased limits
//
// If all limits of a limiter are leased, the process decides from units that it has taken in advance
// (core.SourceLease): see core.Limit.Leased. A Peek, a Status, a Surcharge, a turn of Wait, and core.All always
// ask Redis. [Store.Leases] counts the units.
//
// # Codes in the log
//
//	redis-evicts              Redis has a bound on its memory and evicts keys: see "Server".
//	redis-shared-prefix       Two applications have one Options.Prefix: see "Keys". Give each a prefix, or the same
//	                          Options.App if that is wanted.
//	prefix-colon              Options.Prefix ends in a colon, and the store adds one. Leave it out, unless there
//	                          are keys of that name already.
//	client-ignores-deadlines  The client's options lack ContextTimeoutEnabled, and its ReadTimeout is longer than
//	                          three of the store's timeouts: see "Client". Logged in Connect, or after 100 answers.
//	redis-no-library          The library of functions cannot be loaded, so scripts run.
//	redis-no-scripts          The server or a proxy refuses functions and scripts, so Redis decides nothing: see
//	                          "Services and proxies".
//	redis-foreign-library     Somebody has replaced the library, so scripts run. Find out who may use FUNCTION
//	                          LOAD, and delete the library.
//	redis-panic               The client panicked. If it was opening a connection, its pool has lost a place. Fix the
//	                          cause and create a new client. Logged at most once a minute.
//
// # Testing
//
// Use miniredis: examples/migrate has a test, with a clock that testing/synctest moves. If a test moves the
// server's clock alone, set [Options].NoRefusalCache.
package redisstore
