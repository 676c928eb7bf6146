// Package redisstore keeps the state of limits in Redis, so that the processes of a fleet
// share them. It gives the same answers as memorystore, in one round trip, by Redis's own
// clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// # Client
//
// Any redis.UniversalClient works: a single server, Sentinel, Cluster or Ring, with Redis
// 6.2 or later. The server need not be up when the program starts. These options matter:
//
//	ContextTimeoutEnabled: true
//	    A connection whose reply is lost is given up after five timeouts of the store.
//	    Without it the client holds the connection for its ReadTimeout, 5 s by default. Once
//	    it holds all of its pool, calls fail for that long after the network is well again.
//	ReadTimeout: 200 * time.Millisecond, for a Cluster
//	    The client asks the nodes which of them are masters. If it asks one that hangs it
//	    waits that long. With the default, users of a master that hung wait for 2 to 4 s
//	    after the election; with 200 ms, 0.15 s.
//
// With a *redis.Client the store sends decisions in batches: those that are asked for
// while others are under way go out together, in one run of the script. A decision that
// finds nothing under way is sent at once. On a Cluster or Ring each is sent by itself, as
// it is if the server behind a plain client turns out to be part of a cluster. A proxy that
// spreads keys over servers needs a client that is not a *redis.Client.
//
// With ContextTimeoutEnabled a caller that finds nothing under way sends its call itself,
// which takes less time. It then leaves with the answer or at the timeout, though its
// context is cancelled meanwhile.
//
// # Refusals are repeated without Redis
//
// A user who is over the limit and goes on does not reach Redis: the process repeats the
// refusal for as long as Redis would certainly refuse too. Within a second one caller asks
// Redis again. Such a decision has core.SourceCache. Its RetryAfter errs to the later side,
// by no more than the first answer took.
//
// Reset, Refund, Surcharge, Ban, Unban and other numbers in a limiter of the same Store end
// that at once. What other processes do, or another Store, is seen within the second. So is
// a step back of Redis's clock: a refusal can last a second longer then.
//
// Some actions always reach Redis: those that cost more than one, unless the user is banned;
// those that an ElasticWindow, CountRefused or a BanPolicy records; and all with CL.THROTTLE,
// whose times are whole seconds. Up to 16,384 refusals are kept, in some 4 MB.
// [Options].NoRefusalCache turns that off.
//
// # Testing
//
// miniredis runs the scripts. Move its clock with SetTime and FastForward, and give the store
// NoRefusalCache and a long Timeout. Do not run it inside testing/synctest: that clock does
// not reach a server, and stands still while a goroutine waits for a socket.
// examples/migrate has a whole test.
//
// # Failure
//
// [Options].Timeout bounds every call, whatever the client's own options are. A call
// without an answer is an error: [ErrTimeout], or what the client or Redis says. It is never
// a verdict. No charge is sent twice: the client's retries are off for these commands. A
// bare Store fails closed; core.Fallback and core.FailOpen say what happens instead.
//
// If the caller's context ends before its charge is sent, it is not charged. After that it
// may be. So may a caller whose charge waits for a connection in a batch with others.
//
// If the client cannot open a connection, the store tries to open one itself. So callers
// hear after 10 ms at most that it is refused, and during an outage at once. When Redis is
// back, the first probe of core.Fallback, which is at most 250 ms later, is decided by it.
// Without that the client would try once a second, as it does for your other commands.
//
// # Faults
//
// Tests show this on real servers under load, with core.Fallback behind Redis and one
// process; with n processes read n times for once. No call has an error unless the table
// says so. Each takes the timeout at most. Redis decides again within half a second of its
// return, unless the table says otherwise.
//
//	fault                                users get                            more than the limit, in one period
//	killed, comes back empty             the process's limit, then a new one  twice
//	absent at the start, stopped, hangs  the process's limit                  once
//	connections cut; replies late, lost  the process's limit                  once
//	  or garbage
//	out of memory, READONLY, LOADING,    the process's limit                  once
//	  NOAUTH, WRONGPASS, NOPERM
//	a stall shorter than two timeouts   the process's limit for the calls    once
//	                                     that time out
//	keys evicted                         nothing                              once for each such key
//	nonsense in a key                    the process's limit for that user    once; once more when it is deleted
//	SCRIPT FLUSH                         nothing                              nothing
//	Sentinel's master dies               the process's limit until the        once, and what the replica
//	                                     election, and 0.3 s                  had not heard of
//	a Cluster's master dies or hangs     the same, its users only             the same
//	a Cluster's slot moves               nothing; with several limits, the    once, of several limits
//	                                     process's limit until it has moved
//	a Ring's server dies                 the process's limit, then a new one  twice
//	                                     on the other servers; its users only
//	Redis's clock steps                  no refusal longer than one period    as much as the step, ahead
//	                                     and a second
//
// core.Fallback and its like give up on each server of a Cluster or Ring by itself:
// [Store.Part] tells them whose state is where.
//
// Two faults are not bounded, since the client has them:
//
//   - A panic while a connection is opened, in a hook of yours or for a reply that no Redis
//     gives, uses up a place in the client's pool for good. After PoolSize of them every call
//     fails. The log says so (code "redis-panic"): mend the cause and make the client anew.
//   - A reply that announces 2^31 bytes or elements makes the client allocate them, which
//     can end the process. Speak TLS with a server across a network that you do not trust.
//
// # Keys
//
// A key is tailcut:{user}:action:limit, such as
//
//	tailcut:{laoqian}:reply:sliding:1m
//	tailcut:{laoqian}:like:funnel:15:1/1h
//
// All of a user's keys are in one cluster slot, and users cannot choose it. Bytes that are
// not printable or that mean something in a key are escaped as %XX. A user or action of more
// than 128 bytes is kept as ~ and its digest. So any two users have different keys. Every
// key expires when its state is whole again. Options.Prefix separates applications;
// Options.Secret keeps users out of Redis.
//
// # Memory in Redis
//
//	a key of                       actions    bytes
//	FixedWindow, ElasticWindow     any        120
//	TokenBucket, Funnel, Throttle  any        88; 120 if the rate needs a fraction of a
//	                                          microsecond; 136 with Initial
//	SlidingWindow                  1          120
//	                               5          200
//	                               100        2,136
//	                               10,000     1,289,488
//	MovingWindow                   5          136
//	                               100        856
//	                               10,000     82,008
//	                               1,000,000  8,388,696 (8.4 an action)
//
// This is what MEMORY USAGE says in Redis 7.0 with names of ordinary length. Add 60 for the
// expiry and the table. A MovingWindow of more than 32 actions has room for up to twice as
// many, a long one for an eighth more, one of over half a million for up to 1 MB more. The
// key of a funnel or bucket with refunds remembers up to eight of them, 35 bytes each, until
// the debt of then has drained. The test TestMemory prints the figures.
//
// # Server
//
// An evicted user is forgiven, so give the limits a server of their own with
//
//	maxmemory-policy noeviction
//
// and a user that can do no more than it must:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +evalsha +eval +time +type +get +set +del +getrange +setrange +strlen +zadd +zcard +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +pexpireat +hello +client|setname
//
// With Sentinel that is all. To find the servers and to see that they are there, a client
// of several also needs
//
//	Cluster: +cluster|slots +asking
//	Ring: +ping
//
// A user who also has +info lets the store ask now and then which policy there is. The log
// says so if limits can be evicted (code "redis-evicts").
//
// Persistence is not needed. Without it a restart forgives everybody once.
//
// # Failover
//
// With Sentinel or Cluster a replica takes over from a master that dies. From the death to
// the election calls fail, and for the moment that the client takes to hear of it: 0.3 s
// with Sentinel. The new master is taught the script by the first call.
//
// Replication is asynchronous: what a master has admitted and not yet passed on is
// forgotten. Users can do again what they did in the replica's lag, which is milliseconds
// on a network that is well, and never more than one quota for each failover. A master that
// is cut off from its replica and not dead goes on admitting those who still reach it, which
// can be one quota more. min-replicas-to-write 1 ends that after min-replicas-max-lag.
//
// In a Cluster only the users of the dead master wait for the election, if it runs with
//
//	cluster-require-full-coverage no
//
// A slot that moves costs nothing and forgets nothing. But the cluster refuses a charge of
// several limits with TRYAGAIN while not all of their states are on one side. That is an
// error, a core.ErrKey, until the slot has moved.
//
// # What a fleet carries
//
// Redis 7.0 has one thread for its scripts. On a busy machine of two cores, with 128
// callers, a decision took of it:
//
//	                           on a Cluster       on a single server, in batches
//	Funnel                     16 us, 63,000/s     4 us
//	FixedWindow                18 us, 56,000/s     4 us
//	SlidingWindow              30 us, 33,000/s    10 us
//	Funnel with a FixedWindow  23 us, 43,000/s     8 us
//
// N masters carry N times that if users are many and alike; all of one user's decisions are
// on one node. A single server carries what three to five masters do. When a master fails
// over, its users wait for the election, and the actions of its lag are forgotten: at 30,000
// a second and a lag of 1 ms some 30.
package redisstore
