package migrate

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// newLimiters makes the limiters that a file names, by action.
func newLimiters(store core.Store, file []byte, unmarshal func([]byte, any) error) (map[string]*core.Limiter, error) {
	var config struct {
		Limits map[string][]core.Limit
	}
	if err := unmarshal(file, &config); err != nil {
		return nil, err
	}
	limiters := map[string]*core.Limiter{}
	for action, limits := range config.Limits {
		limiter, err := core.New(store, limits...)
		if err != nil {
			return nil, fmt.Errorf("limits of %s: %w", action, err)
		}
		limiters[action] = limiter
	}
	return limiters, nil
}

var formats = map[string]func([]byte, any) error{"yaml": yaml.Unmarshal, "toml": toml.Unmarshal, "json": json.Unmarshal}

// The files are those of the README.
func TestFilesAreReadAlike(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]core.Limit{
		"reply": {core.SlidingWindow(5, time.Minute)},
		"post":  {core.TokenBucket(10, core.Every(6*time.Second)).Initial(3), core.FixedWindow(100, 24*time.Hour).Named("day")},
	}
	for format, unmarshal := range formats {
		file := regexp.MustCompile("(?ms)^```" + format + "\n(.*?)^```$").FindSubmatch(readme)
		if file == nil {
			t.Errorf("the README has no %s", format)
			continue
		}
		limiters, err := newLimiters(memorystore.New(nil), file[1], unmarshal)
		if err != nil || len(limiters) != len(want) {
			t.Errorf("%s: %d limiters, %v", format, len(limiters), err)
			continue
		}
		for action, limits := range want {
			if got := limiters[action].Limits(); fmt.Sprint(got) != fmt.Sprint(limits) {
				t.Errorf("%s: the limits of %s are %s, want %s", format, action, got, limits)
			}
		}
	}
}

// What is wrong in a file is an error that says where.
func TestFilesThatAreWrongFailAlike(t *testing.T) {
	for format, file := range map[string]string{
		"yaml": "limits:\n  reply: [\"SlidingWindow(5, 60)\"]\n",
		"toml": "limits.reply = [\"SlidingWindow(5, 60)\"]\n",
		"json": `{"limits": {"reply": ["SlidingWindow(5, 60)"]}}`,
	} {
		_, err := newLimiters(memorystore.New(nil), []byte(file), formats[format])
		if want := `position 18: "60" is not a duration`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", format, err, want)
		}
	}
}
