// Package redisstore keeps the state of limits in Redis, so that a fleet shares them:
// same answers as memorystore, decided in one round trip by Redis's own clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// Any redis.UniversalClient serves: a single server, Sentinel, Cluster or Ring, with
// Redis 6.2 or later. The server need not be up when the program starts.
//
// With a *redis.Client, of a single server or Sentinel, decisions that are asked for
// while others are under way go out together, in one run of the script. One that finds
// nothing under way goes at once. On a Cluster or Ring each goes by itself, as it does
// if a server behind a plain client turns out to be part of a cluster. A proxy that
// spreads keys over servers needs a client that is not a *redis.Client.
//
// # Under attack
//
// Whoever is over the limit and goes on is refused by the process, without Redis, for as
// long as Redis would certainly refuse too; Redis is asked again within a second, by one
// caller. Such a decision has core.SourceCache. Reset, Refund, Surcharge, Ban, Unban and
// other numbers in a limiter of the same store end that at once, and what other processes
// do, or another Store, is seen within the second. RetryAfter then errs to the later
// side, by no more than the first answer took.
//
// Asked for every time are what costs more than one, unless it is banned; what an
// ElasticWindow, CountRefused or a BanPolicy records; and CL.THROTTLE, whose times are whole
// seconds. Up to 16,384 refusals are kept, in some 4 MB. [Options].NoRefusalCache turns that
// off.
//
// # Failure
//
// [Options].Timeout bounds every call, whatever the client's own options are. A
// call that has no answer is an error, [ErrTimeout] or what the client or Redis
// says; it is never a verdict, and no charge is sent twice: the client's retries
// are off for these commands. What happens then is said with core.Fallback or
// core.FailOpen; a bare Store fails closed.
//
// Give the client ContextTimeoutEnabled. Without it a connection whose reply is lost
// is held for the client's ReadTimeout, 5 s by default, and not for five time-outs, and
// once all of its pool are, so long do calls fail after the network is well again.
//
// A caller whose context ends before its charge is sent is not charged; after that it
// may be, and so may one whose charge waits for a connection with those of others who
// stay.
//
// # Keys
//
// A key is tailcut:{user}:action:limit, such as
//
//	tailcut:{laoqian}:reply:sliding:1m
//	tailcut:{laoqian}:like:funnel:15:1/2s
//
// Bytes that are not printable or that mean something in a key are escaped as %XX,
// and a user or action of more than 128 bytes is kept as ~ and its digest, so any
// two users have different keys and none can choose a cluster slot. Every key
// expires when its state is whole again. Options.Prefix separates applications;
// Options.Secret keeps users out of Redis.
//
// # Server
//
// Limits that are evicted are forgiven. Give them a server of their own with
//
//	maxmemory-policy noeviction
//
// and a user that can do no more than it must:
//
//	ACL SETUSER tailcut on >password resetchannels ~tailcut:* -@all +evalsha +eval +time +type +get +set +del +getrange +setrange +strlen +zadd +zcard +zcount +zrange +zrem +zremrangebyscore +zremrangebyrank +pexpireat +hello +client|setname
//
// With Sentinel that is all. To find its nodes and to see that they are there, a client
// of several also needs
//
//	Cluster: +cluster|slots +asking
//	Ring: +ping
//
// Persistence is not needed; without it a restart forgives everybody once.
//
// # Failover
//
// With Sentinel or Cluster a replica takes over from a master that dies. From the
// death to the election, and the moment that a client takes to hear of it, calls fail.
// Nothing else is to be done: the new master is taught the script by the first call.
//
// A store that may, by +info, asks once which policy there is, and warns if limits can
// be evicted (code "redis-evicts").
//
// Replication is asynchronous: what a master has admitted and not yet passed on is
// forgotten. Users can do again what they did in the replica's lag, which is
// milliseconds on a network that is well, and never more than one quota for each
// failover. A master that is cut off from its replica and not dead goes on admitting
// to whoever still reaches it, which can be one quota more; min-replicas-to-write 1
// ends that after min-replicas-max-lag.
//
// In a Cluster only the users of the dead master wait for the election, if it runs with
//
//	cluster-require-full-coverage no
//
// A slot that moves costs nothing and forgets nothing. But a charge of several limits
// of which some have no state yet, or not on the same side, is refused by the cluster
// with TRYAGAIN, an error, until the slot has moved.
//
// # What a fleet carries
//
// A decision on a Cluster costs its node 16 us of Redis's one thread for a Funnel, 18 for
// a FixedWindow, 30 for a SlidingWindow and 23 for a Funnel with a FixedWindow; sent
// together, to a single server, 4, 4, 10 and 8 (Redis 7.0 on a busy machine of two cores,
// 128 callers). So a node carries some 63,000, 56,000, 33,000 and 43,000 a second, and N
// masters N times that if users are many and alike; a single server carries what three
// to five masters do. All of one user's decisions are on one node. A failover costs
// the 1/N of the users that the master had its election, and the actions of its lag:
// at 30,000 a second and a lag of 1 ms some 30.
package redisstore
