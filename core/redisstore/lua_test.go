package redisstore_test

import (
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/machine"
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
	want := map[string][]string{"refunds": {"last", "limit", "add"}, "span": {"sub", "exceeds", "ceil"}}
	for kind := range machine.Kinds() {
		want[kind.Form().String()] = []string{"args", "load", "check", "charge", "refuse", "read", "amend", "save"}
	}
	for name, want := range want {
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

// A number that Go and Lua both have is the same in both.
func TestConstantsAreTheSame(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	// expression is what the pattern finds in a file.
	expression := func(file, pattern string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return string(found[1])
	}
	for _, tt := range []struct{ lua, luaPattern, golang, goPattern string }{
		{"counter", `local linger = (.+)`, "counter", `const linger = (.+)`},
		{"trail", `local maxOwed = (.+)`, "trail", `const maxOwed = (.+)`},
		{"ring", `local since = (.+)`, "trail", `const maxSince = (.+)`},
		{"refunds", `local most = (.+)`, "refunds", `const maxRefunds = (.+)`},
		{"meter", `local mostDebt = (\d+)`, "meter", `return Span\{(.+), 0\}`},
	} {
		lua, err := rdb.Eval(t.Context(), "return string.format('%.0f', "+expression("lua/"+tt.lua+".lua", tt.luaPattern)+"\n)", nil).Text()
		if err != nil {
			t.Fatalf("%s: %v", tt.luaPattern, err)
		}
		golang, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression("../machine/"+tt.golang+".go", tt.goPattern))
		if err != nil {
			t.Fatalf("%s: %v", tt.goPattern, err)
		}
		if golang := constant.ToInt(golang.Value).ExactString(); lua != golang {
			t.Errorf("%s: %s in Lua and %s in Go", tt.luaPattern, lua, golang)
		}
	}
}
