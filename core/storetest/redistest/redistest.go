// Package redistest starts real redis-server processes for tests, on free loopback
// ports, and ends them with the test.
//
//	server := redistest.Start(t)
//	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
//
// A test that needs one is skipped with -short. Where redis-server is not installed it is
// skipped too, and fails if the environment variable TAILCUT_REDIS is "required".
package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds every wait for a server.
const patience = 20 * time.Second

// Server is a redis-server process.
type Server struct {
	Addr string // 127.0.0.1:port
	Port string

	t    testing.TB
	args []string
	env  []string
	cmd  *exec.Cmd
	out  bytes.Buffer
	mu   sync.Mutex
}

func missing(t testing.TB, what, pkg string) {
	t.Helper()
	say := fmt.Sprintf("%s is not installed; get it with: apt-get install %s (Debian, Ubuntu)", what, pkg)
	if os.Getenv("TAILCUT_REDIS") == "required" {
		t.Fatal(say)
	}
	t.Skip(say)
}

// Need skips a test that would start servers, if none can be started; with clock also if
// their clock cannot be set. Only a test that starts its servers in subtests, and sums up what
// they did, has to call it.
func Need(t testing.TB, clock bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a server, and the tests are short")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		missing(t, "redis-server", "redis-server")
	}
	if clock {
		fakeTime(t)
	}
}

// fakeTime is where libfaketime is.
func fakeTime(t testing.TB) string {
	t.Helper()
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(libs) == 0 {
		missing(t, "libfaketime", "faketime")
	}
	return libs[0]
}

// Start starts a server that keeps nothing on disk. config is lines for its
// configuration file.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	return start(t, nil, config)
}

func start(t testing.TB, env, config []string, args ...string) *Server {
	t.Helper()
	Need(t, false)
	port := freePort(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "redis.conf")
	lines := append([]string{
		"bind 127.0.0.1", "port " + port, "dir " + dir, `save ""`, "appendonly no", "daemonize no",
	}, config...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: "127.0.0.1:" + port, Port: port, t: t, args: append([]string{file}, args...), env: env}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// Run starts the process, again after Kill, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Reset()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if reply, err := s.Try("PING"); err == nil && (reply == "+PONG" || strings.HasPrefix(reply, "-NOAUTH")) {
			return
		}
		if time.Now().After(end) {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			s.t.Fatalf("redis-server does not answer:\n%s", &s.out)
		}
	}
}

// Kill ends the process at once, as kill -9 does.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Do sends a command and returns the first line of its reply.
func (s *Server) Do(words ...string) string {
	s.t.Helper()
	reply, err := s.Try(words...)
	if err != nil {
		s.t.Fatalf("%s: %v", words, err)
	}
	return reply
}

// Try is Do on a server that may close the connection, as one that is promoted does.
func (s *Server) Try(words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "$") && line != "$-1\r\n" {
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		body := make([]byte, n)
		for got := 0; got < n && err == nil; {
			var m int
			m, err = r.Read(body[got:])
			got += m
		}
		return string(body), err
	}
	return strings.TrimRight(line, "\r\n"), err
}

const firstPort, lastPort = 10_000, 19_999

// ports is how many were tried, from anywhere, since another process looks for some too.
var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(lastPort)) }

// freePort returns a free port outside the system's ephemeral range, so that no other
// process gets it before the server starts or while it is down. The port 10,000 above is
// for the bus of a cluster.
func freePort(t testing.TB) string {
	t.Helper()
	for range lastPort - firstPort {
		port := fmt.Sprint(firstPort + ports.Add(1)%(lastPort-firstPort+1))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Clock is the clock of a server, in the test's hands. It stands still.
type Clock struct {
	t    testing.TB
	file string
	us   int64
}

// StartAt starts a server whose clock shows now and is moved by the test, with the
// help of libfaketime.
func StartAt(t testing.TB, now time.Time, config ...string) (*Server, *Clock) {
	t.Helper()
	lib := fakeTime(t)
	c := &Clock{t: t, file: filepath.Join(t.TempDir(), "now"), us: now.UnixMicro()}
	c.write()
	return start(t, []string{
		// The C library's allocator before jemalloc, which asks for the time before
		// libfaketime is ready to tell it.
		"LD_PRELOAD=" + lib + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_FMT=%s", // seconds since 1970, without an @: it stands still
		"FAKETIME_NO_CACHE=1",
		"DONT_FAKE_MONOTONIC=1", // the event loop's
		"TZ=UTC",
	}, config), c
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.us) }

// Advance moves the clock; a negative d steps it back.
func (c *Clock) Advance(d time.Duration) {
	c.t.Helper()
	c.us += int64(d / time.Microsecond)
	c.write()
}

func (c *Clock) write() {
	c.t.Helper()
	// Half a microsecond more, since the library reads the fraction as a float. The
	// file is replaced and not rewritten, since the server may be reading it.
	text := fmt.Sprintf("%d.%06d5\n", c.us/1e6, c.us%1e6)
	if err := os.WriteFile(c.file+".new", []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.t.Fatal(err)
	}
}
