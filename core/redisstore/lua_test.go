package redisstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Each file of Lua is Lua by itself. miniredis parses a script that it loads.
func TestEachFileIsLua(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := rdb.ScriptLoad(t.Context(), string(text)).Err(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if rdb.ScriptLoad(t.Context(), string(text)+"end").Err() == nil {
			t.Errorf("%s with an end too many is loaded too", file)
		}
	}
}

// A machine's functions have the same names in the same order in Lua and in Go. So have those of what
// the machines share.
func TestMachinesHaveTheSameFunctions(t *testing.T) {
	machine := []string{"args", "load", "check", "charge", "refuse", "read", "amend", "save"}
	for name, want := range map[string][]string{
		"meter": machine, "counter": machine, "trail": machine, "ban": machine, "slots": machine,
		"refunds": {"last", "limit", "add"}, "span": {"sub", "exceeds", "ceil"},
	} {
		for file, declared := range map[string]string{
			"lua/" + name + ".lua":       `(?m)^(?:local )?function (\w+)\(`,
			"../machine/" + name + ".go": `(?m)^func \(\w*\s?\*?\w+\) (\w+)\(`,
		} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range regexp.MustCompile(declared).FindAllStringSubmatch(string(text), -1) {
				if own := strings.ToLower(m[1]); slices.Contains(want, own) {
					got = append(got, own)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", file, got, want)
			}
		}
	}
}
