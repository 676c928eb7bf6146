package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// slotsMove moves the slots of users from the first master to the second while they
// charge. Redirections are followed, so that nothing fails and nothing is forgotten;
// but a charge of several keys is refused by the cluster itself as long as one of them is on
// the other side, or does not exist, as the key of a ban policy that nobody has broken.
func slotsMove(t *testing.T, servers []*redistest.Server, rdb *redis.ClusterClient, home func(*target) int) {
	const budget = 500 * time.Millisecond // but on a busy machine one may take longer
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	single := targets(store, "moves", 6, 100)
	several := &target{limit: kindsOf(100)[0], lim: core.Must(core.New(store, kindsOf(100)...))}
	policed := &target{limit: kindsOf(100)[1], lim: core.Must(core.Must(core.New(store, kindsOf(100)[1])).With(
		core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Minute}}))}
	for i, tg := range []*target{several, policed} {
		for j := 0; tg.who == "" || home(tg) != 0; j++ {
			tg.who = fmt.Sprint("moves too ", i, " ", j)
		}
	}
	l := startLoad(t, 8, append(single, several, policed)...)
	within(t, "the cluster serves", func() bool { return l.well(500) })

	from, to := connect(t, &redis.Options{Addr: servers[0].Addr}), connect(t, &redis.Options{Addr: servers[1].Addr})
	said := func(what string) int { return errorStat(from, what) + errorStat(to, what) }
	moved := map[int]bool{}
	move := func(tg *target, halfway func()) {
		key := store.Key(tg.who, action, tg.limit)
		slot := slotOf(t, servers[0], key)
		if moved[slot] || home(tg) != 0 {
			return
		}
		moved[slot] = true
		do := func(rdb *redis.Client, line ...any) {
			if err := rdb.Do(t.Context(), line...).Err(); err != nil {
				t.Fatalf("%v: %v", line, err)
			}
		}
		do(to, "cluster", "setslot", slot, "importing", servers[0].Do("CLUSTER", "MYID"))
		do(from, "cluster", "setslot", slot, "migrating", servers[1].Do("CLUSTER", "MYID"))
		do(from, "migrate", "127.0.0.1", servers[1].Port, key, 0, 5000)
		halfway()
		for { // a key may still come, while not all have gone
			keys, err := from.ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) == 0 {
				break
			}
			for _, k := range keys {
				do(from, "migrate", "127.0.0.1", servers[1].Port, k, 0, 5000)
			}
		}
		asked := said("ASK")
		within(t, "a client is sent on", func() bool { return said("ASK") > asked })
		do(to, "cluster", "setslot", slot, "node", servers[1].Do("CLUSTER", "MYID"))
		do(from, "cluster", "setslot", slot, "node", servers[1].Do("CLUSTER", "MYID"))
	}
	for _, tg := range single {
		move(tg, func() {})
	}
	if n, _, err := l.failures(); n > 0 {
		t.Errorf("%d charges of one limit failed: %v", n, err)
	}
	for _, tg := range []*target{several, policed} {
		move(tg, func() {
			before := said("TRYAGAIN")
			within(t, "a charge of several keys is told to wait", func() bool { return said("TRYAGAIN") > before })
		})
	}
	done := time.Now()
	within(t, "the cluster serves", func() bool { return l.well(500) })
	within(t, "all is used up", l.usedUp)
	l.stop(budget)
	l.atMost(1)
	n, last, problem := l.failures()
	if n != several.failed+policed.failed || last.Sub(done) > soon {
		t.Errorf("%d errors, %d of them of several limits and %d of a ban policy, the last %s after the move: %v", n, several.failed, policed.failed, last.Sub(done), problem)
	}
	if len(moved) < 2 || said("MOVED") == 0 {
		t.Errorf("%d slots were moved, and %d times a client was told", len(moved), said("MOVED"))
	}
}

// givenBackWhileSlotsMove gives back all that a key has, while its slot moves. The key is gone then, so
// a script that still touched it would fail: the key would be another server's.
func givenBackWhileSlotsMove(t *testing.T, servers []*redistest.Server, store *redisstore.Store, home func(*target) int) {
	for i, limit := range kinds {
		tg := &target{limit: limit}
		for j := 0; tg.who == "" || home(tg) != 0; j++ {
			tg.who = fmt.Sprint("gives back ", i, " ", j)
		}
		slot := fmt.Sprint(slotOf(t, servers[0], store.Key(tg.who, action, limit)))
		lim := core.Must(core.Must(core.New(store, limit)).With(core.Refundable{}))
		d, err := lim.AllowN(t.Context(), tg.who, action, 2)
		if err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", limit, d, err)
		}
		servers[1].Do("CLUSTER", "SETSLOT", slot, "IMPORTING", servers[0].Do("CLUSTER", "MYID"))
		servers[0].Do("CLUSTER", "SETSLOT", slot, "MIGRATING", servers[1].Do("CLUSTER", "MYID"))
		if err := lim.Refund(t.Context(), d); err != nil {
			t.Errorf("%s: Refund: %v", limit, err)
		}
		if err := lim.Release(t.Context(), d); err != nil {
			t.Errorf("%s: Release: %v", limit, err)
		}
		for _, s := range servers[:2] {
			s.Do("CLUSTER", "SETSLOT", slot, "STABLE")
		}
	}
}
