// Package metrics counts the decisions of limiters. Outside this module, it needs only the standard
// library. Packages tailcutprom and tailcutotel export the counts to Prometheus and OpenTelemetry.
// Each is a separate module: go get github.com/tailcut/tailcut/core/metrics/tailcutprom
//
//	m := metrics.New(nil)
//	store := m.Watch(core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)))
//	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))
//
//	prometheus.MustRegister(tailcutprom.Collector(m))
//	expvar.Publish("tailcut", expvar.Func(func() any { return m.Snapshot() }))
//
// Put Watch outermost, around Fallback, FailOpen or Shadow, so that it counts the decisions that
// callers get. One Metrics can watch several stores, and adds up their counts.
//
// # What is counted
//
// Each call of Allow, AllowN or Wait that reaches the store is one decision, and so is a request
// through the middleware. A Wait is one decision even if it asks the store several times.
//
// A call of core.All is one decision, of the subject that core.Decision.Subject names. If the store
// decides about one subject after the other, each charge and each refusal is a decision, even if
// the charge is given back.
//
// These are not counted: Peek, Status, a cost of 0, Surcharge, Refund, Settle, Release, Renew,
// Reset, Ban and Unban. A call without a decision is not counted if its caller canceled the
// context, or if the deadline ended while the call waited for its turn.
//
// # Labels
//
// A decision has an action, a limit, an outcome and a source:
//
//	action    the action. Actions are labels, so use route templates and not raw paths
//	limit     the identity of the limit that decided, such as "sliding:1m". PerUser limits have
//	          "*:" in front
//	outcome   allowed, limited, in-flight, banned, full, shadowed, error
//	source    store, fallback, cache, lease; none if FailOpen or Shadow let it pass, or for an error
//
// For the outcomes allowed, limited, in-flight and full, the limit is the binding limit. For banned
// it is "ban" or "*:ban". For shadowed it is the shadow limit, or with the store core.Shadow the
// binding limit. For an error it is the limiter's first limit.
//
// A label holds a user only if Options.ExportRefused is set. By default, 1,000 pairs of an action
// and a limit are counted separately: see Options.MaxPairs. If there are more, the log says so
// once:
//
//	too-many-pairs  Further actions are counted as "other". An action must not have a path or an id
//	                in it.
//
// # Who was refused
//
// [Metrics.MostRefused] lists the users with the most refusals of the last ten minutes, or of
// [Options].RefusedWindow. Users appear as hashes, or with Options.ShowUsers by name.
//
// Each process has its own list of refused users. If all processes have the same Options.HashKey,
// [MergeRefused] adds up their lists. The program examples/admin shows the last hour over two
// processes. If Options.ExportRefused is set, the exporters show the list too. In Prometheus, sum
// by (user) adds up the lists of the processes.
//
// For a line in the log about each refusal, use [Metrics.OnDecision].
//
// # When a store is down
//
// A store is down if it has failed three times in a row, and the last failure is less than a minute
// old. Fallback, FailOpen and Shadow then decide without it, and only probe it. The store is up
// again with the first answer, or one minute after its last failure if no call follows. If a store
// is spread over several servers, it is down while one of the servers is down.
//
// # Which document of plans is in force
//
// After [Metrics.WatchPlans], a snapshot has the number and the version of the document of package
// plans that is in force, and says how many documents were rejected. Replicas with different
// versions have different limits.
//
// # What it costs
//
// For most decisions Watch makes no allocation. A new pair of action and limit, a refused user who
// is new in the list, and a call of Wait allocate. The list of refused users adds 40 to 150 ns to a
// refusal, and nothing to an allowed action. Decisions by a memorystore are not timed.
package metrics
