package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

func post(t *testing.T, h http.Handler, user, path string) int {
	t.Helper()
	r := httptest.NewRequest("POST", path, nil)
	r.Header.Set("Authorization", "Bearer of-"+user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// scrape returns what /metrics says after every route has been used.
func scrape(t *testing.T, store core.Store) string {
	t.Helper()
	h := routes(store)
	for _, r := range []struct {
		path            string
		times, admitted int
	}{{"/posts", 12, 10}, {"/posts/1/replies", 12, 5}, {"/posts/1/likes", 15, 15}} {
		created := 0
		for range r.times {
			if post(t, h, "alice", r.path) == http.StatusCreated {
				created++
			}
		}
		if created != r.admitted {
			t.Errorf("%s: %d of %d are let through, want %d", r.path, created, r.times, r.admitted)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestMetricsOfTheForum(t *testing.T) {
	t.Setenv("HASH_KEY", "0123456789abcdef")
	said := scrape(t, memorystore.New(nil))
	for _, want := range []string{
		`tailcut_decisions_total{action="post",limit="bucket:10:1/6s",outcome="limited",source="store"} 2`,
		`tailcut_decisions_total{action="reply",limit="ban",outcome="banned",source="store"} 3`,
		`tailcut_decisions_total{action="like",limit="funnel:15:1/2s",outcome="allowed",source="store"} 15`,
		`tailcut_refused_users{hashed="true",user="fdbf8b1cacd3"} 9`,
		`tailcut_store_down 0`,
	} {
		if !strings.Contains(said, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, said)
		}
	}
	if strings.Contains(said, "alice") {
		t.Error("it tells the user")
	}
}

var metricName = regexp.MustCompile(`\btailcut_[a-z_]+`)

// What the dashboard and the alerts name must exist, or they show and say nothing.
func TestEveryMetricThatIsNamedExists(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	said := scrape(t, core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)))
	for _, file := range []string{"dashboard.json", "alerts.yml", "alerts_test.yml", "README.md"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(raw), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metrics", file)
		}
		for _, name := range names {
			if !regexp.MustCompile(`(?m)^(# TYPE )?` + name + `[{ ]`).MatchString(said) {
				t.Errorf("%s names %s, which does not exist:\n%s", file, name, said)
			}
		}
	}
}

// promtool runs it. Where it is not installed the test is skipped, or fails if the
// environment variable TAILCUT_REDIS is "required", as in CI.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		say := "promtool is not installed; get it with: apt-get install prometheus (Debian, Ubuntu)"
		if os.Getenv("TAILCUT_REDIS") == "required" {
			t.Fatal(say)
		}
		t.Skip(say)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", args, err, out)
	}
}

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")
}

func TestPromtoolReadsTheDashboard(t *testing.T) {
	raw, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	fmt.Fprintln(&rules, "groups: [{name: dashboard, rules: [")
	for i, p := range board.Panels {
		for j, target := range p.Targets {
			fmt.Fprintf(&rules, "{record: \"panel:%d:%d\", expr: %q},\n", i, j, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	fmt.Fprintln(&rules, "]}]")
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
