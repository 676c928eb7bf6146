package browser

// A server is the forum as its own process, on a free loopback port.

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// build builds the forum once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ugc")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
	bin := filepath.Join(dir, "ugc")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

type server struct {
	t    *testing.T
	url  string
	args []string
	cmd  *exec.Cmd
}

// serve starts a server, which ends with the test.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, args: args}
	s.run("127.0.0.1:0")
	t.Cleanup(s.kill)
	return s
}

func (s *server) run(addr string) {
	s.t.Helper()
	bin, err := build()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(bin, append(s.args, "-addr", addr)...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if s.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(line); s.url == "" {
		s.t.Fatalf("the forum says %q, %v", line, err)
	}
}

// kill ends the process at once.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// post sends a post to the forum, as JSON.
func (s *server) post(body string) {
	s.t.Helper()
	resp, err := http.Post(s.url+"/posts", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("the post is answered with %s", resp.Status)
	}
}

// frameworks are the values of -framework.
var frameworks = []string{"nethttp", "gin", "echo", "echo5"}

// inAllFrameworks runs a test against a server of each framework, at the same time: most of
// it is waiting.
func inAllFrameworks(t *testing.T, test func(t *testing.T, s *server)) { in(t, frameworks, test) }

// inTwoFrameworks does so for what is a matter of the page. TAILCUT_LONG=1 has it in all.
func inTwoFrameworks(t *testing.T, test func(t *testing.T, s *server)) {
	if os.Getenv("TAILCUT_LONG") != "" {
		inAllFrameworks(t, test)
		return
	}
	in(t, []string{"nethttp", "echo"}, test)
}

func in(t *testing.T, frameworks []string, test func(t *testing.T, s *server)) {
	for _, name := range frameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t, "-framework", name))
		})
	}
}
