package redisstore_test

import (
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
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

// A number that Go and Lua both have is the same in both.
func TestConstantsAreTheSame(t *testing.T) {
	for _, tt := range []struct{ name, lua, golang string }{
		{"linger", "counter", "counter"},
		{"maxOwed", "trail", "trail"},
		{"maxSince", "ring", "trail"},
		{"maxRefunds", "refunds", "refunds"},
		{"mostDebt", "meter", "meter"},
	} {
		find := func(file, pattern string) string {
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
		lua := find("lua/"+tt.lua+".lua", "local "+tt.name+` = (\d+)`)
		golang, err := types.Eval(token.NewFileSet(), nil, token.NoPos, find("../machine/"+tt.golang+".go", "const "+tt.name+" = (.+)"))
		if err != nil || constant.ToInt(golang.Value).ExactString() != lua {
			t.Errorf("%s: %s in Lua and %v in Go, %v", tt.name, lua, golang.Value, err)
		}
	}
}
