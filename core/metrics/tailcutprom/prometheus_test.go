package tailcutprom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait for a server.
const patience = time.Minute

// program is the path of one that is installed. Without it the test is skipped, or fails if
// the environment variable TAILCUT_REDIS is "required", as in CI.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		say := name + " is not installed; get it with: apt-get install prometheus (Debian, Ubuntu)"
		if os.Getenv("TAILCUT_REDIS") == "required" {
			t.Fatal(say)
		}
		t.Skip(say)
	}
	return path
}

// A prometheus is a real one that scrapes a server.
type prometheus struct {
	t    *testing.T
	addr string
}

// features are further arguments of the command.
func startPrometheus(t *testing.T, metrics http.Handler, features ...string) prometheus {
	t.Helper()
	path := program(t, "prometheus")
	target := httptest.NewServer(metrics)
	t.Cleanup(target.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := free.Addr().String(), t.TempDir()
	_ = free.Close()
	config := fmt.Sprintf("global: {scrape_interval: 250ms}\nscrape_configs: [{job_name: tailcut, static_configs: [{targets: [%q]}]}]\n", target.Listener.Addr())
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, append(features, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return prometheus{t, addr}
}

// query returns what Prometheus says of an expression: a value for each set of labels,
// written as label=value in the order of the names.
func (p prometheus) query(expression string, names ...string) (map[string]string, error) {
	resp, err := http.Get("http://" + p.addr + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		p.t.Fatal(body.Error)
	}
	found := map[string]string{}
	for _, r := range body.Data.Result {
		var labels []string
		for _, name := range names {
			labels = append(labels, r.Metric[name])
		}
		found[strings.Join(labels, " ")] = fmt.Sprint(r.Value[1])
	}
	return found, nil
}

// until waits until Prometheus says what is wanted.
func (p prometheus) until(want map[string]string, expression string, names ...string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		got, err := p.query(expression, names...)
		if err == nil && fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: after %s it is %v (%v), want %v", expression, patience, got, err, want)
		}
	}
}
