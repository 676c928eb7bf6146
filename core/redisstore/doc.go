// Package redisstore keeps the state of limits in Redis, so that the processes of a fleet
// share them. It makes the same decisions as memorystore. A decision takes one round trip and
// uses Redis's own clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// # Client
//
// Any redis.UniversalClient works: a single server, Sentinel, Cluster or Ring. The servers are
// Redis 6.2, 7 and 8, and Valkey 8. The server need not be up when the program starts. These
// options matter:
//
//	ContextTimeoutEnabled: true
//	    If a reply is lost, the client gives up the connection after three of the store's
//	    timeouts. Without this option it holds the connection for its ReadTimeout, 5 s by
//	    default. If all of its connections are held, calls fail for as long after the network
//	    has recovered. And without it a caller that is alone pays for another goroutine,
//	    which sends its call.
//	ReadTimeout: 200 * time.Millisecond, for a Cluster
//	    The client asks the nodes which of them are masters. If a node hangs, the client
//	    waits that long. If a master hangs, its users wait for 2 to 4 s after the election
//	    with the default, and for 0.15 s with 200 ms.
//	ConnMaxLifetime: time.Minute, with min-replicas-to-write
//	    A client keeps its connections to a master that is cut off and answers NOREPLICAS.
//	ConnMaxIdleTime: shorter than the idle timeout of the server or of a balancer before it
//	    With TLS the client does not notice that the server has closed an idle connection,
//	    and behind a balancer there may be nothing to notice. The next call on it fails.
//
// With a *redis.Client the store sends decisions in batches. Two batches may be under way, and more if Redis
// is far away: one for each millisecond of its response time, at most 32, and no more than the client
// has connections (PoolSize). If there are fewer, a decision is sent at once, or if Redis is far away as soon
// as the last batch is far enough ahead. Otherwise decisions wait and then go out together, in one call of
// the function or script. So more callers fill the batches. On a Cluster or Ring
// each decision is sent alone, as many at a time as there are connections to the node. So is each
// decision if the server behind a plain client is part of a cluster. For a proxy that spreads keys
// over servers, use a client that is not a *redis.Client. Do not give the store an
// AutoPipeliner: give it the client inside. An AutoPipeliner ignores deadlines, so after an outage
// the server still charges callers who already got an error. It also hides which server a call
// goes to, so one hung server of a Cluster looks like all of them.
//
// With ContextTimeoutEnabled, if nothing is under way, the caller sends its call itself. It then returns
// with the answer or at the timeout, even if its context is canceled meanwhile. Your hooks, handlers of
// push notifications and the connections of your Dialer must then observe deadlines, or the caller waits
// longer. If the client has a Limiter, OnConnect, a credentials provider or no deadlines (a ReadTimeout
// or WriteTimeout of -2), another goroutine sends the call.
//
// # Refusals are cached
//
// If a refused user tries again, the process repeats the refusal without asking Redis, as long
// as Redis would certainly refuse too. At least once a second one caller asks Redis again. A
// repeated decision has core.SourceCache. Its RetryAfter may be too long, by at most the latency
// of the first answer.
//
// Reset, Refund, Settle, Surcharge, Ban, Unban and a limiter with other numbers on the same Store end
// a cached refusal at once. A change by another process or another Store is noticed within a
// second. If Redis's clock steps back, a refusal can last a second longer.
//
// Some actions always reach Redis: decisions of core.All about several subjects; costs above one, unless
// the user is banned; refusals that an ElasticWindow, CountRefused or a BanPolicy records; refusals by
// InFlight alone, since another process may release a slot; and all actions with CL.THROTTLE, whose
// times are whole seconds. The cache holds up to 16,384 refusals, about 4 MB. [Options].NoRefusalCache
// turns it off.
//
// # Leased limits
//
// If all limits of a limiter are leased (core.Limit.Leased), the process decides from units that it has
// taken in advance. Such a decision has core.SourceLease and needs no call of Redis. Its Remaining is what
// remained at the last answer of Redis, less what this process has used since, and its ResetAfter may be
// too long.
//
// Redis decides a user's first action. While the answer is under way, other callers wait for it. If more
// actions come within the time of a lease, one caller takes units for all of them. A process takes a little
// less than it used lately in a lease, so that little is left, or up to 16 times as much while its load
// grows, but at most half of what remains. So near the limit it takes units one by one. What is left at the
// end of the lease is given back. If 16 returns are under way, or one fails, units are lost until their
// charge is forgotten. [Store.Leases] counts them.
//
// For each key that it leases a process sends at most 40 commands in any second, however the load changes.
// They are 20 to 30 under a steady load. A lease that is shorter than 50 ms costs more: at most 40 commands
// in 20 leases, which are 100 a second with 20 ms. At most four commands follow each other at once, and the
// others come every 27.5 ms, or nearly twice in a shorter lease. A caller who needs units meanwhile waits
// for the next command if there is room. Near the limit the process refuses by itself (core.SourceLease)
// until then, even if a few units remain. A refusal by Redis is repeated for at most a lease, because other
// processes give back what they hold.
//
// There is no such bound if the limiter has a BanPolicy, since Redis counts every refusal, and none if the
// last answer of Redis was an error, or took longer than a lease or than a third of the timeout. Then Redis
// is asked for each action until an answer comes sooner. Refunds to Redis, and calls that always ask Redis,
// come in addition.
//
// A lease ends by the process's own clock, counted from before its charge was sent. It also ends by the
// time of day, in case the machine was suspended.
//
// These always ask Redis: a Peek, a Status, a Surcharge, a turn that Wait reserves, a decision by core.All
// about several subjects, and a limiter with a limit that is not leased. A shadow limit is decided for all
// units of a take at once. A refund goes to the lease while it lasts, and then to Redis. Reset and Ban on
// this Store drop what the process holds for the user and the action, or for all actions if a limit or ban is
// PerUser. Other processes may use what they hold until their leases end. While Redis is down, a process may
// use up what it holds.
//
// A store holds units for at most 16,384 pairs of a user and an action. Redis decides the others.
//
// # Testing
//
// miniredis has no functions, so it runs scripts. Inside testing/synctest connect with its Dial method,
// and switch on ClockTTL: then time.Sleep moves its clock. Outside, move the clock with SetTime and
// FastForward, and give the store NoRefusalCache and a long Timeout. examples/migrate has a
// complete test.
//
// # Failure
//
// [Options].Timeout bounds every call, whatever the client's own options are. A call
// without an answer is an error: [ErrTimeout], or the error of the client or of Redis. It is
// never a refusal. No charge is made twice: the client's retries are disabled for these commands.
// A Cluster's client still repeats a command that a node has not run, because the node is not
// the key's master.
// A bare Store fails closed. To change that, wrap it in core.Fallback or core.FailOpen.
//
// If the caller's context ends before its charge is sent, the caller is not charged. After
// that it may be charged. It may also be charged if the caller sends its call itself. So at most the
// charges of the batches under way are taken without an answer: up to 2,048 in each batch, and as
// many batches as there are connections, at most 32. A charge that takes a slot of core.InFlight does not
// end with its caller. After an [ErrTimeout] the slot may be taken until its lease ends.
//
// Calls do not wait in a batch while a connection is opened, which takes up to six round trips: a
// PING opens it first. If a call has waited so long that its answer would come after the timeout,
// it is not sent. If an answer comes too late, the next batches are smaller, so that an overload does
// not make all calls late.
//
// # Slow networks
//
// The response time may be most of the timeout. With a timeout of 50 ms, round trips of 1 to 40 ms, up
// to 500 callers and a PoolSize of 4 to 20, every call is answered once the connections are open.
// [Store.Connect] opens them before the program serves. Without it calls fail until then: for 25 ms of
// round trip 4 to 6% of those of the first two seconds, for 40 ms 13 to 20%. These figures are of the
// real client over a simulated network; a busy machine loses more at 40 ms. Use at least ten
// connections if the response time is more than half of the timeout: with n connections a call can wait
// for an n-th of the response time before it is sent.
//
// For each connection the client asks HELLO and CLIENT SETINFO, and for the first one CLIENT
// MAINT_NOTIFICATIONS, one after another. DisableIdentity and a MaintNotificationsConfig with
// ModeDisabled save a round trip each.
//
// If a call has no answer, or the client cannot open a connection, the store opens one itself, and sends a
// PING. Until that is answered no call is sent. So if Redis is not there callers get the error within 10 ms,
// and during an outage at once. If only the old connections are dead, because a NAT or a balancer has
// forgotten them, the store closes all that are idle, and Redis decides again within half a second, up to
// 40 ms away. When Redis is back, it answers
// the first probe of core.Fallback, at most 250 ms later. But the client counts its failures to
// connect over its whole life, and after PoolSize of them it tries only once a second. The store's
// probes keep them to one in an outage, mostly. So once in PoolSize outages, or less often, Redis
// decides up to 1.3 s after its return.
//
// # Faults
//
// These faults are tested on real Redis under load, with core.Fallback and one process. With n
// processes, "one quota" is n quotas. Users get no errors, and no call takes longer
// than the timeout. Redis decides again within half a second of its return, unless the table
// says otherwise, or the client has failed to connect too often (see Failure).
//
//	fault                                users get                            more than the limit, in one period
//	killed, loses its data               the process's limit, then a new one  two quotas
//	not running at start-up, stopped,    the process's limit                  one quota
//	  hung
//	connections cut; replies late, lost  the process's limit                  one quota
//	  or corrupt
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
// If one server of a Cluster or Ring fails, core.Fallback, core.FailOpen and core.Shadow stop
// asking only that one. [Store.Part] tells them which server has a user's state.
//
// Two faults are in the client, and the store cannot bound them:
//
//   - If the client panics while it opens a connection, in one of your hooks or on a malformed
//     reply, its pool loses a slot. After PoolSize such panics every call fails. The log reports
//     it (code "redis-panic"): fix the cause and create a new client.
//   - If a reply announces 2^31 bytes or elements, the client allocates them, which can end
//     the process. Use TLS across a network that you do not trust.
//
// # Keys
//
// A key is tailcut:{user}:action:limit. Examples are
//
//	tailcut:{alice}:reply:sliding:1m
//	tailcut:{alice}:like:funnel:15:1/1h
//
// All of a user's keys are in one cluster slot, and users cannot choose it. Bytes that are
// not printable or have a meaning in a key are escaped as %XX. A user or action of more than
// 128 bytes is replaced by ~ and its digest. So any two users have different keys.
// Applications with one [Options].Prefix share the limits, and bans, of users and actions of the same
// name, even if their users are not the same people. Options.Secret keeps users' names out of Redis.
//
// If [Options].Tag returns another name for a user, that name is the hash tag, and the user follows it:
//
//	tailcut:{org-7}org-7/alice:reply:sliding:1m
//
// So users with one tag are in one slot, and core.All decides about them in one step. A user whose tag
// changes has new keys, and so the full quota again.
//
// Every key expires when the limit's full quota is available again: for InFlight that is when the last
// lease ends. The key of a CalendarWindow expires a second later, in case the clock steps back. The key of
// a bucket with Initial expires after its ForgetAfter, and that of a BanPolicy when refusals and bans are
// forgotten. A refund does not shorten the life of a funnel's or bucket's key.
//
// # Calendar windows
//
// Redis knows no time zones. So each call says when the previous, the current and the next period of a
// CalendarWindow begin, by the clock of the process, and the script chooses the one that Redis's clock is
// in. That works as long as the two clocks differ by less than a period. Otherwise the error is [ErrClock].
//
// # Memory in Redis
//
//	a key of                       actions    bytes
//	FixedWindow, ElasticWindow,    any        120
//	  CalendarWindow
//	TokenBucket, Funnel, Throttle  any        88; 120 if the rate needs a fraction of a
//	                                          microsecond; 136 with Initial
//	SlidingWindow                  1          120
//	                               5          200
//	                               100        2,136
//	                               10,000     1,289,488
//	InFlight                       1 to 10,000, as SlidingWindow
//	MovingWindow                   5          136
//	                               100        856
//	                               10,000     82,008
//	                               1,000,000  8,388,696 (8.4 per action)
//
// These are the figures of MEMORY USAGE in Redis 7.0, with names of ordinary length. Add 60 for the
// expiry and the table. A MovingWindow of more than 32 actions has spare room: when it grows, for
// twice as many, or from 512 actions on for an eighth more. It shrinks when a quarter is in use and
// fewer than 500,000 actions count. The key of a funnel or bucket remembers up to eight refunds, 35
// bytes each, until the debt at the time of the refund has drained. TestMemory prints the figures.
//
// # Server
//
// If Redis evicts a key, its user has the full quota again. So give the limits a separate server
// with
//
//	maxmemory-policy noeviction
//
// and a Redis user with no more permissions than needed:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +fcall +function|list +evalsha +eval +time +get +set +del +ping +getrange +setrange +strlen +zadd +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +zscore +pexpireat +hello +client|setname
//
// Redis 6.2 does not know +fcall and +function|list: leave them out. Sentinel needs nothing more.
// Other clients, and those of a database other than 0, also need
//
//	Cluster: +cluster|slots +asking
//	Cluster with ReadOnly, RouteByLatency or RouteRandomly: also +readonly +command
//	DB: +select
//
// From Redis 7.2 on, the client also says its version (CLIENT SETINFO). It does without if that is not
// permitted; DisableIdentity turns it off.
//
// With +info the store checks the eviction policy in Connect, after 100 answers and then at most every ten
// minutes. It logs a warning if limits can be evicted (code "redis-evicts").
//
// Without persistence every user has the full quota again after a restart of Redis. That does not matter
// for limits of minutes. For quotas of a day or a month set appendonly yes: a crash then forgets about a
// second of actions.
//
// # Functions and scripts
//
// From Redis 7.0 on, the Lua that decides is a library of Redis Functions, which stays loaded. [Store.Connect],
// or else the first call, finds out whether a server has it, beside the calls. Until then, and on a server
// without functions (Redis 6.2, miniredis, many services and proxies), the same Lua runs as a script, which
// takes up to twice the CPU time. The store looks again every minute. With [Options].NoFunctions it uses
// scripts on every server.
//
// If the library is not there, the store loads it. The user above may not: whoever may load libraries can
// replace that of another application. On such a server an administrator loads it, and a replica has it too:
//
//	go run github.com/tailcut/tailcut/core/redisstore/library | redis-cli -x FUNCTION LOAD
//
// Without that scripts run, and the log says so once (code "redis-no-library"). The store compares the code of
// the library with its own, and does not call one that somebody has replaced (code "redis-foreign-library"). It
// looks every ten minutes, so give no application +function|load on a server that others use.
//
// A library is replicated, and is in RDB and AOF. Its name has a digest of its source, so programs of two
// versions work side by side. A library of an old version stays until you delete it:
//
//	redis-cli FUNCTION LIST LIBRARYNAME 'tailcut_*'
//	redis-cli FUNCTION DELETE tailcut_0123456789abcdef
//
// If Redis is out of memory or a replica, it refuses every call of a function. The store then
// runs the script, which can still answer a Peek and refuse. If there are fewer replicas than
// min-replicas-to-write (NOREPLICAS), or Redis cannot save (MISCONF), it refuses every call of a
// function too. After a second the store runs scripts, which still answer those two.
//
// # Failover
//
// With Sentinel or Cluster a replica takes over from a master that dies. Calls fail until the
// election, and until the client knows the new master: 0.3 s later with Sentinel. The new
// master has the library.
//
// Replication is asynchronous: actions that a master has admitted and not yet replicated are
// forgotten. Users can repeat the actions of the replica's lag, which is milliseconds on a
// healthy network, and at most one quota for each failover. A master that is alive but cut off
// from its replica still admits users who reach it. They can get one extra quota.
// min-replicas-to-write 1 ends that after min-replicas-max-lag.
//
// In a Cluster only the users of the dead master wait for the election, if it runs with
//
//	cluster-require-full-coverage no
//
// If a slot moves, no state is lost. But a call that needs more than one key, of several
// limits or a limit with a BanPolicy, fails until the slot has moved, unless all of its keys
// exist and are on one server. The cluster answers TRYAGAIN, and the error is a core.ErrKey.
//
// # Capacity
//
// Redis runs functions and scripts in one thread. On a busy machine of two cores, with 128 callers, one
// decision took this much of the thread's time:
//
//	                           on a Cluster       on a single server, in batches
//	Funnel                     16 us, 63,000/s     4 us
//	FixedWindow                18 us, 56,000/s     4 us
//	SlidingWindow              30 us, 33,000/s    10 us
//	Funnel with a FixedWindow  23 us, 43,000/s     8 us
//
// With many similar users, N masters make N times as many decisions; all decisions about one user
// are on one node. A single server with batches is as fast as three to five masters. At 30,000
// decisions a second and a lag of 1 ms, a failover forgets about 30 actions.
package redisstore
