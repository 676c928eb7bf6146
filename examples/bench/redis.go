package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// server is the Redis of a run, and the client that all contenders share, with the
// pool that go-redis gives by default.
type server struct {
	rdb     *redis.Client
	version string
	next    int // the number of the next unused key
	end     func()
}

// connect uses the server at addr, or starts one.
func connect(ctx context.Context, addr string) (*server, error) {
	end := func() {}
	if addr == "" {
		var err error
		if addr, end, err = startRedis(ctx); err != nil {
			return nil, err
		}
	}
	s := &server{
		rdb:  redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
		next: int(time.Now().Unix()%1_000_000) * 1_000_000, // apart from those of an earlier run
		end:  end,
	}
	var err error
	for patience := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var info string
		if info, err = s.rdb.Info(ctx, "server").Result(); err == nil {
			s.version = field(info, "redis_version:")
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(patience) {
			s.close()
			return nil, fmt.Errorf("the Redis at %s does not answer: %w", addr, err)
		}
	}
}

// keys are n keys that nobody has used.
func (s *server) keys(n int) []string {
	s.next += n
	return manyKeys(s.next-n, n, uint64(s.next))
}

func (s *server) close() {
	_ = s.rdb.Close()
	s.end()
}

// startRedis starts a server that keeps nothing on disk, on a free loopback port.
func startRedis(ctx context.Context) (addr string, end func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, errors.New("redis-server is not installed; get it with apt-get install redis-server (Debian, Ubuntu) or brew install redis, or give -redis host:port")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return addr, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

// field is what follows name in a reply of INFO, to the end of the line.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
			return value
		}
	}
	return ""
}

// store waits longer for answers than it does unless told, so that a busy machine
// loses no decision.
func (s *server) store() core.Store {
	return redisstore.New(s.rdb, &redisstore.Options{Timeout: time.Second, Prefix: "bench"})
}

func (s *server) tailcut(limits ...core.Limit) (decide, error) {
	l, err := core.New(s.store(), limits...)
	return asks(l), err
}

func (s *server) redisRate(q quota) decide {
	l, limit := redis_rate.NewLimiter(s.rdb), redis_rate.Limit{Rate: q.n, Burst: q.n, Period: q.per}
	return func(key string) (bool, error) {
		r, err := l.Allow(background, key, limit)
		return err == nil && r.Allowed > 0, err
	}
}

func (s *server) incr(key string) (bool, error) {
	return true, s.rdb.Incr(background, "incr:"+key).Err()
}

// beside measures Tailcut, redis_rate and INCR.
func (s settings) beside(ctx context.Context, keys []string, q quota, workers int) ([]score, error) {
	ask, err := s.redis.tailcut(q.funnel())
	if err != nil {
		return nil, err
	}
	return s.compete(ctx, s.most(q, len(keys)),
		among(keys, workers, tailcut, ask),
		among(keys, workers, "redis_rate", s.redis.redisRate(q)),
		among(keys, workers, "INCR", s.redis.incr))
}

// rates lists the scores as decisions per second, with Tailcut's by the others'. The
// targets are the others', in their order; 0 is none.
func rates(what string, scores []score, targets ...float64) table {
	t := table{head: []string{what, "decisions/s", tailcut + " ÷ it", "target", "met"}}
	for i, sc := range scores {
		line := []string{sc.name, thousands(1e9 / median(sc.ns))}
		switch {
		case i == 0:
			line = append(line, "1", noPeer, noPeer)
		case targets[i-1] == 0:
			line = append(line, ratio(quotient(sc.ns, scores[0].ns)), noPeer, noPeer)
		default:
			line = append(line, atLeast(quotient(sc.ns, scores[0].ns), targets[i-1])...)
		}
		t.add(line...)
	}
	t.noteRefused(scores)
	return t
}

// redisDecision is row 3.
func redisDecision(ctx context.Context, s settings) ([]table, error) {
	var tables []table
	for _, c := range []struct {
		workers int
		targets []float64
	}{{64, []float64{2, 1}}, {256, []float64{3.5, 0}}} {
		scores, err := s.beside(ctx, s.redis.keys(someKeys), slow, c.workers)
		if err != nil {
			return nil, err
		}
		tables = append(tables, rates(count(c.workers, "goroutine"), scores, c.targets...))
	}
	tables[1].note("Limits of %s, so that no key is whole again before its next action.", slow)
	return tables, nil
}

// redisHotKey is row 5.
func redisHotKey(ctx context.Context, s settings) ([]table, error) {
	scores, err := s.beside(ctx, s.redis.keys(1), plenty, 64)
	if err != nil {
		return nil, err
	}
	key := s.redis.keys(1)
	leased, err := s.redis.tailcut(plenty.funnel().Leased(50 * time.Millisecond))
	if err != nil {
		return nil, err
	}
	byLease, err := s.compete(ctx, s.most(plenty, 1),
		among(key, 64, tailcut+", leased for 50 ms", leased),
		among(key, 64, "redis_rate", s.redis.redisRate(plenty)))
	if err != nil {
		return nil, err
	}
	return []table{rates("64 goroutines, 1 key", scores, 4, 0), rates("64 goroutines, 1 key, with leases", byLease, 30)}, nil
}

// redisEach is row 11. What is compared has the same number of callers, and takes turns.
func redisEach(ctx context.Context, s settings) ([]table, error) {
	rate := core.Per(slow.n, slow.per)
	limits := []struct {
		name string
		core.Limit
	}{
		{"SlidingWindow", core.SlidingWindow(slow.n, slow.per)},
		{"MovingWindow", core.MovingWindow(slow.n, slow.per)},
		{"FixedWindow", core.FixedWindow(slow.n, slow.per)},
		{"ElasticWindow", core.ElasticWindow(slow.n, slow.per)},
		{"TokenBucket", core.TokenBucket(slow.n, rate)},
		{"Funnel", core.Funnel(slow.n, rate)},
		{"Throttle", core.Throttle(slow.n-1, rate).Named("throttle")}, // else its state is the Funnel's
	}
	byIncr := table{head: []string{"decisions ÷ those of INCR"}}
	byPeer := table{head: []string{"decisions ÷ those of redis_rate"}}
	for _, workers := range []int{1, 16, 64, 256} {
		keys := s.redis.keys(someKeys)
		contenders := []contender{
			among(keys, workers, "redis_rate", s.redis.redisRate(slow)),
			among(keys, workers, "INCR", s.redis.incr),
		}
		for _, l := range limits {
			ask, err := s.redis.tailcut(l.Limit)
			if err != nil {
				return nil, err
			}
			contenders = append(contenders, among(keys, workers, l.name, ask))
		}
		scores, err := s.compete(ctx, s.most(slow, someKeys), contenders...)
		if err != nil {
			return nil, err
		}
		peer, incr := scores[0], scores[1]
		for t, to := range map[*table]score{&byIncr: incr, &byPeer: peer} {
			t.head = append(t.head, count(workers, "goroutine"))
			for i, sc := range append([]score{to}, scores[2:]...) {
				if len(t.lines) == i {
					t.add(sc.name)
				}
				cell := ratio(quotient(to.ns, sc.ns))
				if i == 0 {
					cell = "(" + thousands(1e9/median(to.ns)) + "/s)"
				}
				t.lines[i] = append(t.lines[i], cell)
			}
		}
		byPeer.noteRefused(scores)
	}
	byPeer.note("Limits of %s, and of as many at once: all is admitted, and no key is whole again before its next action.", slow)
	return []table{byIncr, byPeer}, nil
}

// redisSubjects is row 15. An organization has a hundred users.
func redisSubjects(ctx context.Context, s settings) ([]table, error) {
	const users = 100
	keys := s.redis.keys(someKeys)
	store := s.redis.store()
	user, err := core.New(store, slow.funnel())
	if err != nil {
		return nil, err
	}
	org, err := core.New(store, core.FixedWindow(1_000_000_000, 24*time.Hour))
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]string, len(keys))
	for i, key := range keys {
		orgs[key] = "org:" + keys[i-i%users]
	}
	scores, err := s.compete(ctx, s.most(slow, someKeys),
		among(keys, 64, "a user and their organization", func(key string) (bool, error) {
			d, err := core.All(background, user.For(key, "reply"), org.For(orgs[key], "reply"))
			return d.Allowed, err
		}),
		among(keys, 64, "a user", asks(user)))
	if err != nil {
		return nil, err
	}
	t := rates("64 goroutines, "+count(someKeys, "user"), scores, 0.6)
	t.head[2] = "two ÷ it"
	return []table{t}, nil
}

// redisThree is row 7.
func redisThree(ctx context.Context, s settings) ([]table, error) {
	keys := s.redis.keys(someKeys)
	one, err := s.redis.tailcut(slow.funnel())
	if err != nil {
		return nil, err
	}
	three, err := s.redis.tailcut(slow.funnel(), core.FixedWindow(100_000, time.Hour), core.FixedWindow(1_000_000, 24*time.Hour))
	if err != nil {
		return nil, err
	}
	unlike, err := s.redis.tailcut(slow.funnel(), core.FixedWindow(100_000, time.Hour), core.MovingWindow(100_000, time.Minute))
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, tt := range []struct {
		what   string
		ask    decide
		target float64
	}{{"alike", three, 0.6}, {"unlike", unlike, 0.4}} {
		scores, err := s.compete(ctx, s.most(slow, someKeys),
			among(keys, 64, "three limits, "+tt.what, tt.ask), among(keys, 64, "one limit", one), among(keys, 64, "redis_rate, one limit", s.redis.redisRate(slow)))
		if err != nil {
			return nil, err
		}
		t := rates("64 goroutines, "+count(someKeys, "key"), scores, tt.target, 0)
		t.head[2] = "three ÷ it"
		tables = append(tables, t)
	}
	tables[1].note("The one limit is a Funnel of %s. Three alike are it and two FixedWindows, of an hour and of a day; unlike, it, a FixedWindow of an hour and a MovingWindow of a minute.", slow)
	return tables, nil
}

// movingWindow is row 8.
func movingWindow(ctx context.Context, s settings) ([]table, error) {
	speed := table{head: []string{"window of 60 s, 1 key", "ns a decision", fmt.Sprintf("%s ÷ 5", grouped(s.million)), "target", "met"}}
	space := table{head: []string{"a full window", "bytes per action", "target", "met"}}
	for _, where := range []struct {
		name    string
		store   core.Store
		workers int
		bytes   func(context.Context, string) (float64, error)
	}{
		{"Redis, 64 goroutines", s.redis.store(), 64, s.redis.memoryUsage},
		{"memory, 1 goroutine", memorystore.New(nil), 1, nil},
	} {
		before := live()
		large, err := newWindow(where.store, s.million)
		if err != nil {
			return nil, err
		}
		small, err := newWindow(where.store, 5)
		if err != nil {
			return nil, err
		}
		if err := large.fill(0); err != nil {
			return nil, err
		}
		bytes := live() - before
		if where.bytes != nil {
			if bytes, err = where.bytes(ctx, large.user); err != nil {
				return nil, err
			}
		}
		bytes /= float64(s.million)
		space.add(where.name, ratio(bytes), "≤ 8.5", met(bytes <= 8.5))

		scores, err := s.compete(ctx, 0, large.refusing(where.workers), small.refusing(where.workers))
		if err != nil {
			return nil, err
		}
		speed.add(append([]string{where.name + ", full", whole(median(scores[0].ns))}, atMost(quotient(scores[0].ns, scores[1].ns), 1.3)...)...)
		scores, err = s.compete(ctx, s.million/2, large.admitting(where.workers), small.admitting(where.workers))
		if err != nil {
			return nil, err
		}
		speed.add(where.name+", filling", whole(median(scores[0].ns)), ratio(quotient(scores[0].ns, scores[1].ns)), noPeer, noPeer)
		speed.noteRefused(scores)
	}
	speed.note("Full: every decision is a refusal, by Peek, since one that is charged is repeated without Redis. Filling: each is admitted, to the large window as its last ones, to the small one five for each of many users.")
	return []table{speed, space}, nil
}

// A window is a MovingWindow of 60 s and the user who fills it.
type window struct {
	max     int
	limiter *core.Limiter
	user    string
	filled  time.Time
	users   int
}

func newWindow(store core.Store, max int) (*window, error) {
	l, err := core.New(store, core.MovingWindow(max, time.Minute))
	return &window{max: max, limiter: l}, err
}

// fill takes a new user and all but room of his actions.
func (w *window) fill(room int) error {
	w.newUser()
	w.filled = time.Now()
	for left := w.max - room; left > 0; {
		n := min(left, 10_000)
		if d, err := w.limiter.AllowN(background, w.user, action, n); err != nil || !d.Allowed {
			return fmt.Errorf("filling a window: allowed %t, %w", d.Allowed, err)
		}
		left -= n
	}
	return nil
}

func (w *window) newUser() {
	w.users++
	w.user = fmt.Sprintf("window-%d-%d", time.Now().UnixNano(), w.users)
}

func (w *window) contender(run func(from, n int) (sample, error)) contender {
	return contender{core.MovingWindow(w.max, time.Minute).String(), run}
}

// refusing asks of a full window.
func (w *window) refusing(workers int) contender {
	return w.contender(func(from, n int) (sample, error) {
		if time.Since(w.filled) > 30*time.Second {
			if err := w.fill(0); err != nil {
				return sample{}, err
			}
		}
		// A refusal that is charged would be repeated without Redis.
		look := func(key string) (bool, error) {
			d, err := w.limiter.Peek(background, key, action)
			return d.Allowed, err
		}
		return among([]string{w.user}, workers, "", look).run(from, n)
	})
}

// admitting asks of a window, or of as many as it takes, that n actions make full.
func (w *window) admitting(workers int) contender {
	return w.contender(func(_, n int) (sample, error) {
		users := make([]string, (n+w.max-1)/w.max)
		for i := range users {
			w.newUser()
			users[i] = w.user
		}
		if len(users) == 1 && n < w.max {
			if err := w.fill(n); err != nil {
				return sample{}, err
			}
			users[0] = w.user
		}
		return among(users, workers, "", asks(w.limiter)).run(0, n)
	})
}

// memoryUsage is what the keys of a user take, by MEMORY USAGE.
func (s *server) memoryUsage(ctx context.Context, user string) (float64, error) {
	keys, err := s.rdb.Keys(ctx, "*{"+user+"}*").Result()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, key := range keys {
		n, err := s.rdb.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return 0, err
		}
		total += float64(n)
	}
	return total, nil
}
