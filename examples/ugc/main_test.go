package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build builds the program once for all tests that start it.
func build(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds the program, and the tests are short")
	}
	bin := filepath.Join(t.TempDir(), "ugc")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// A program is ugc as it runs on a free port.
type program struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	logs lockedBuffer
	out  io.Reader
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start returns when the program has said its address.
func start(t *testing.T, bin string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.CommandContext(t.Context(), bin, append(args, "-addr", "127.0.0.1:0")...)}
	p.cmd.Stderr = &p.logs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	p.out = lines
	line, err := lines.ReadString('\n')
	if p.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(line); err != nil || p.url == "" {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	return p
}

func (p *program) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// ends checks that the program ends well and has logged what it did.
func (p *program) ends() {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("after SIGTERM: %v\n%s", err, &p.logs)
	}
	for _, want := range []string{"msg=request", `msg="shutting down"`} {
		if !strings.Contains(p.logs.String(), want) {
			p.t.Errorf("the log has no %s:\n%s", want, &p.logs)
		}
	}
}

func TestProgram(t *testing.T) {
	bin := build(t)
	for name := range frameworks {
		t.Run(name, func(t *testing.T) {
			p := start(t, bin, "-framework", name)
			for _, path := range []string{"/", "/status", "/posts/1"} {
				resp, err := http.Get(p.url + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("GET %s: status %d", path, resp.StatusCode)
				}
			}
			p.terminate()
			p.ends()
			if strings.Contains(p.logs.String(), "path=/status") {
				t.Error("the log tells of what open pages ask all the time")
			}
		})
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"bad-flag":      {[]string{"-speed", "9"}, "flag provided but not defined: -speed"},
		"bad-framework": {[]string{"-framework", "rails"}, "it is one of nethttp, gin, echo and echo5"},
		"argument":      {[]string{"gin"}, "ugc takes no arguments"},
		"bad-address":   {[]string{"-addr", "nowhere"}, "missing port in address"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), bin, test.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.says) {
				t.Errorf("%v: %s; want it to fail and say %q", err, out, test.says)
			}
		})
	}
	t.Run("help", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), bin, "-help").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-framework") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("finishes", func(t *testing.T) { finishes(t, bin) })
	t.Run("README", func(t *testing.T) {
		for path, least := range map[string]int{"../../README.md": 0, "README.md": 2} {
			readme, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(readme, -1)
			if len(sessions) < least {
				t.Errorf("%s has %d console sessions", path, len(sessions))
			}
			for i, session := range sessions {
				t.Run(fmt.Sprint(strings.ReplaceAll(path, "../", "-"), i+1), func(t *testing.T) { replay(t, bin, string(session[1])) })
			}
		}
	})
}

// replay types what a session of a README types at a shell, for a program that has
// just been started, and compares what comes.
func replay(t *testing.T, bin, session string) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	p := start(t, bin)
	for _, step := range strings.Split("\n"+session, "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		sh := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "http://127.0.0.1:8080", p.url))
		out, err := sh.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if got := timeless(string(out)); got != timeless(want) {
			t.Errorf("$ %s\n%s\nwant\n%s", command, got, timeless(want))
		}
	}
	p.terminate()
	p.ends()
}

// finishes checks that a request under way is answered when the program is told to
// end, and that no new one is taken.
func finishes(t *testing.T, bin string) {
	p := start(t, bin)
	host := strings.TrimPrefix(p.url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(8 * time.Second)); err != nil {
		t.Fatal(err)
	}
	const body = `{"text":"late"}`
	fmt.Fprintf(conn, "POST /posts HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", host, len(body))
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 100 ") { // the handler reads the body
		t.Fatalf("%q, %v", line, err)
	}
	p.terminate()
	for {
		another, err := net.Dial("tcp", host)
		if err != nil {
			break
		}
		another.Close()
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(conn, body)
	_, _ = answers.ReadString('\n') // the empty line after 100
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("status %d, want 201", resp.StatusCode)
	}
	p.ends()
}

// timeless drops what differs from one time to the next.
func timeless(s string) string {
	s = strings.ReplaceAll(s, "\r", "")
	s = regexp.MustCompile(`Date: .*|X-Ratelimit-Reset: \d+`).ReplaceAllString(s, "...")
	s = regexp.MustCompile(`\b5[5-9]\b`).ReplaceAllString(s, "60") // seconds of a minute, if the machine is slow
	return strings.TrimSpace(s)
}
