// Package redisstore keeps the state of limits in Redis, so that the processes of a fleet share
// them. It decides by the same rules as memorystore. A decision usually takes one round trip, and
// uses Redis's own clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// # I want to
//
//   - start: the lines above, and [Store.Connect] before the program serves; see "Client"
//   - know what users may do while Redis is down: "Faults"
//   - use a Cluster, a cloud service or a proxy: "Services and proxies"
//   - set up Redis, its user and its memory: "Server"
//   - let two applications use one Redis: [Options].Prefix; see "Keys"
//   - decide about a user and their organization on a Cluster: [Options].Tag
//   - keep names of users out of Redis: [Options].Secret
//   - relieve one busy key: core.Limit.Leased; see "Leased limits"
//   - read the history of a SlidingWindow: [Store.History]
//   - load the library of functions as an administrator: "Functions and scripts"
//   - test with miniredis: "Testing"
//   - limit a route, a login, a month or a stream: "I want to" of package core
//
// # Client
//
// The clients of go-redis work: for a single server, Sentinel, Cluster or Ring, of Redis 6.2, 7, 8
// or Valkey 8. These options of the client matter:
//
//	ContextTimeoutEnabled: true
//	    If a reply is lost, the client gives up the connection after at most three of the store's
//	    timeouts. Without this option it holds the connection for its ReadTimeout, 5 s by default.
//	ReadTimeout: 200 * time.Millisecond, for a Cluster
//	    If a master hangs, its users wait for 0.15 s after the election. With the default they wait
//	    for 2 to 4 s.
//	ConnMaxLifetime: time.Minute, if the server has min-replicas-to-write
//	    A master that is cut off answers NOREPLICAS. The client keeps its connections to such a
//	    master.
//	ConnMaxIdleTime: shorter than the idle timeout of the server or of a balancer before it
//	    With TLS the client does not notice that the server has closed an idle connection.
//	PoolSize: at least 10, if the response time is more than half of Options.Timeout
//	    Otherwise calls wait for each other.
//
// Do not give the store an AutoPipeliner, because it ignores deadlines. Hooks, push handlers and a
// Dialer must heed deadlines.
//
// # Services and proxies
//
// With a *redis.Client, the store can send the decisions of many callers together, in one command,
// which takes the least CPU time. A Cluster, a Ring, and some services and proxies need each
// decision to be sent alone, in its own command. A decision that is sent alone occupies a connection
// until it is answered, so give the client a PoolSize that is enough for that. Sending alone does
// not change what is decided.
//
// [Store.Connect], or otherwise the first call, finds out what a service or a proxy can do, by
// commands that charge nothing:
//
//	service or proxy                     decisions are sent          set
//	Alibaba Cloud, cluster by the proxy  alone, as scripts           script_check_enable 0 if Connect
//	                                                                 says that scripts are refused
//	Tencent Cloud, cluster               alone
//	Huawei Cloud DCS, cluster by the     alone, as scripts
//	  proxy; Volcengine, sharded
//	AWS ElastiCache, Serverless or       alone                       use a ClusterClient
//	  cluster mode; Google Memorystore
//	  Cluster; Alibaba Cloud direct
//	Azure Managed Redis                  alone                       use a ClusterClient, and the OSS
//	                                                                 policy
//	Upstash                              together, as scripts where
//	                                     it has no functions
//	Dragonfly, KeyDB                     together, as scripts        for Dragonfly also NewCellStore
//	Envoy                                alone, as scripts           enable_hashtagging: true
//	Predixy                              alone, as scripts           HashTag "{}"
//	Redis Cluster Proxy                  alone, as scripts
//	Twemproxy                            never: it closes the connection when go-redis says HELLO
//	Oracle OCI Cache, sharded            never: it has neither functions nor scripts
//	Azure Cache for Redis                never: it is Redis 6.0, and 6.2 is needed
//
// The table is from the documentation or source of the services and proxies. The services have not
// been tried. The tests use proxies that refuse the same commands, in front of a real Redis.
// Package redistest has these proxies. For each of them it names the page that says what the proxy
// refuses.
//
// Alibaba Cloud's proxy may read scripts, and refuse a script in which a key is not written as
// KEYS[1]. In the scripts of this package keys are arguments of Lua functions, and it is not known
// whether the proxy refuses that. With script_check_enable 0 the proxy does not read scripts. The
// scripts use only the keys of the command.
//
// Envoy, and Predixy before several groups, send a command to the server that has the first key of
// the command, and ignore the other keys. Until the store knows that, a user may have states on two
// servers. So call Connect before the program serves. With [Options].NoFunctions the store learns
// it only in Connect.
//
// # Failure
//
// [Options].Timeout bounds every call but Connect, whatever the client's own options are. A call
// without an answer is an error: [ErrTimeout], or the error of the client, of Redis or of the
// caller's context. Redis makes no charge twice, because the store disables the client's retries for
// its commands. A bare Store fails closed. To change that, wrap it in core.Fallback or
// core.FailOpen.
//
// If the caller's context ends before the store sends the charge, the caller is not charged. If the
// context ends later, the caller may be charged. If the answer to a charge of core.InFlight is
// lost, the store releases the charge's slots in the background. The charge may arrive late. So if
// the slots are not found, the store repeats the release for about a minute. If Redis does not
// answer, the store may repeat the release until the lease ends.
//
// Calls may fail until the first connections are open. [Store.Connect] opens them before the program
// serves, and returns what is wrong with the server. After Connect, with a timeout of 50 ms, calls
// are answered in time as long as Redis responds within 40 ms.
//
// If a call has no answer, and Redis has answered no call since that call was sent, the store opens
// a new connection. It also does that if a connection is closed. The store sends no call until
// Redis answers on the new connection. If connections are refused, callers get the error at once.
// If Redis hangs, each call waits for its timeout. If only the old connections are dead, because a
// NAT or a balancer has forgotten them, Redis decides again within half a second.
//
// # Faults
//
// These faults are tested on real Redis under load, with core.Fallback and one process. Users get
// no errors, and no call takes longer than the timeout. Redis decides again within half a second of
// its return, unless the table says otherwise. "The process" means that the process's own limit
// decides. With n processes, "one quota" is n quotas.
//
//	fault                               who decides                    more than the limit, at most,
//	                                                                   in one period
//	killed, and its data is lost        the process, then Redis anew   two quotas
//	not running at start-up, stopped,   the process                    one quota
//	  hung
//	connections cut, or forgotten by a  the process                    one quota
//	  NAT; replies late, lost or corrupt
//	out of memory, READONLY, LOADING,   the process                    one quota
//	  NOAUTH, WRONGPASS, NOPERM
//	a stall shorter than two timeouts   the process, for the calls     one quota
//	                                    that time out
//	keys evicted                        Redis                          one quota for each such key
//	a key with a foreign value          the process, for that user     one quota; another one when
//	                                                                   the key is deleted
//	FUNCTION FLUSH, SCRIPT FLUSH        Redis                          nothing
//	Sentinel's master dies              the process, until 0.3 s       one quota, and what had not
//	                                    after the election             been replicated
//	a Cluster's master dies or hangs    the same, for its users        the same
//	a Cluster's master restarts before  the process, for its users,    one quota; two if the master
//	  an election                       until 2.3 s after its return:  loses its data
//	                                    it refuses for two seconds
//	a Cluster's slot moves              Redis; with several limits or  one quota, with several limits
//	                                    a BanPolicy the process, until or a BanPolicy
//	                                    the slot has moved
//	a Ring's server dies                the process, then anew the     two quotas
//	                                    other servers; for its users
//	a process with leases dies          Redis                          nothing; what the process held
//	                                                                   is lost for a period
//	Redis's clock steps                 Redis; no refusal is longer    as much as the step, if the
//	                                    than one period and a second   clock steps ahead
//
// A master that is cut off still admits users who reach it, unless its min-replicas-to-write is 1
// or more.
//
// If one server of a Cluster or Ring fails, core.Fallback, core.FailOpen and core.Shadow stop
// asking that server, and still ask the others. Set cluster-require-full-coverage to no on a
// Cluster. Otherwise the failure affects all users of the Cluster.
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
// The part in braces decides the slot of a Cluster, so all of a user's keys are in one slot. In
// names, bytes that are not printable or have a meaning in a key, such as braces and colons, are
// escaped as %XX. A name of more than 128 escaped bytes is replaced by ~ and its SHA-256 digest. So
// any two users have different keys.
//
// Applications with the same [Options].Prefix share bans, and the states of limits with the same
// identity, if their users and actions have the same names. Options.Secret keeps users' names out
// of Redis. Options.Tag puts the users of one organization into one slot, so that core.All decides
// about them in one step. If a user's tag changes, the user has new keys, and so the full quota
// again.
//
// When a key expires:
//
//   - The key of a limit expires when the limit's full quota is available again. With a
//     CalendarWindow it expires a second later.
//   - The key of an InFlight expires when its last lease ends.
//   - The key of a ban policy expires when its bans and refusals are forgotten.
//   - The key of a bucket with Initial expires ForgetAfter after the last admitted action, or after
//     the refusal that started the bucket. If the user owes more than the capacity, it expires
//     later.
//   - If a bucket or funnel had a refund, its key may be kept until everything charged before the
//     refund would have drained.
//
// # Memory in Redis
//
//	funnel or bucket                    88 bytes
//	count, such as of a FixedWindow     120 bytes
//	SlidingWindow, InFlight             200 bytes with 5 actions, and 1.3 MB with 10,000
//	MovingWindow                        8.4 bytes for each action
//
// Add 60 bytes for each key, for its expiry and its place in Redis's table.
//
// # Server
//
// If Redis evicts the key of a limit, its user has the full quota of that limit again. If it evicts
// the key of a ban, the ban ends. So give the limits a separate server with
//
//	maxmemory-policy noeviction
//
// and a Redis user with no more permissions than needed:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +fcall +function|list +evalsha +eval +time +get +set +del +ping +getrange +setrange +strlen +zadd +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +zscore +pexpireat +hello +client|setname
//
// Redis 6.2 does not know +fcall and +function|list: leave them out. Sentinel needs nothing more.
// These clients need more permissions, and so does a database other than 0:
//
//	Cluster: +cluster|slots +asking
//	Cluster with ReadOnly, RouteByLatency or RouteRandomly: also +readonly +command
//	DB: +select
//
// With +info the store checks the eviction policy in Connect, after 100 answers and then at most
// every ten minutes. It logs a warning if limits can be evicted.
//
// Without persistence a restart of Redis gives every user the full quota again, and ends all bans.
// For quotas of a day or a month set appendonly yes. A crash then loses about a second of actions.
//
// # Functions and scripts
//
// From Redis 7.0 on, the Lua that decides is a library of Redis Functions, which stays loaded.
// Redis 6.2, miniredis and many services and proxies have no functions. On them the same Lua runs
// as a script, which takes up to twice the CPU time. [Store.Connect], or otherwise the first call,
// finds out whether a server has functions. If a server has none, the store looks again every
// minute. With [Options].NoFunctions the store uses scripts on every server.
//
// The store loads the library if it may. The Redis user in "Server" may not, because a user who may
// load libraries can replace those of other applications. With that user, scripts run until an
// administrator loads the library by this command:
//
//	go run github.com/tailcut/tailcut/core/redisstore/library | redis-cli -x FUNCTION LOAD
//
// Every ten minutes the store checks that the library has the store's own code. If the code
// differs, the store runs scripts instead. Until the store notices the difference, foreign code
// decides. So give no application +function|load on a server that others use.
//
// Programs of two versions work side by side. The library of an old version stays until you delete
// it:
//
//	redis-cli FUNCTION LIST LIBRARYNAME 'tailcut_*'
//	redis-cli FUNCTION DELETE tailcut_0123456789abcdef
//
// # CL.THROTTLE
//
// If a server has CL.THROTTLE, [NewCellStore] makes a store that uses it in place of the Lua, for
// limiters of one Funnel or Throttle.
//
// # Cached refusals
//
// For up to a second after Redis has refused an action, the store may repeat the refusal without
// asking Redis (core.SourceCache). If the same Store changes the state, the store asks again at
// once. A change by another process, or an outage, is noticed within a second.
//
// The store asks Redis about each attempt in cases such as these:
//
//   - The call is a Peek or a Status.
//   - core.All decides about several subjects.
//   - The cost is above one, and the user is not banned.
//   - A limit or a BanPolicy records the refusal.
//   - [Options].NoRefusalCache is set.
//
// # Leased limits
//
// If all limits of a limiter are leased, the process usually decides from units that it has taken
// in advance (core.SourceLease): see core.Limit.Leased. [Store.Leases] counts the units. Redis
// decides the first action of a user, a Peek, a Status, a Surcharge, a Wait that reserves a turn,
// and a core.All about several subjects.
//
// # Codes in the log
//
//	redis-evicts              Redis has a bound on its memory and evicts keys: see "Server".
//	redis-shared-prefix       Two applications have one Options.Prefix: see "Keys". Give each a
//	                          prefix. If they share limits on purpose, give them one Options.App.
//	prefix-colon              Options.Prefix ends in a colon, and the store adds a colon. Leave yours
//	                          out, unless there are keys of that name already.
//	client-ignores-deadlines  The client's options lack ContextTimeoutEnabled, and its ReadTimeout is
//	                          longer than three of the store's timeouts: see "Client". Logged in
//	                          Connect, or after 100 answers.
//	redis-no-library          The library of functions cannot be loaded, so scripts run.
//	redis-no-scripts          The server or a proxy refuses functions and scripts, so Redis decides
//	                          nothing: see "Services and proxies".
//	redis-foreign-library     Somebody has replaced the library, so scripts run. Find out who may use
//	                          FUNCTION LOAD, and delete the library.
//	redis-panic               The client panicked. If it was opening a connection, its pool has lost
//	                          a place. Fix the cause and create a new client. Logged at most once
//	                          a minute.
//
// # Testing
//
// Use miniredis: examples/migrate has a test, with a clock that testing/synctest moves. If a test
// moves only the clock of the server, set [Options].NoRefusalCache.
package redisstore
