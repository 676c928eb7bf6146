package redisstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The scripts are made of the files in lua/, one for each machine. Each file begins with
// what its machine is told and what it replies. A line "--@ name" begins a part of a file;
// where a part is used there is a line "--@ file.name".
//
//go:embed lua/*.lua
var luaFiles embed.FS

var (
	takeSource, refundSource = assemble("take"), assemble("refund")
	takeScript, refundScript = redis.NewScript(takeSource), redis.NewScript(refundSource)
)

var use = regexp.MustCompile(`(?m)^\t*--@ ([a-z]+)\.([a-z]+)\n`)

// assemble is a file with the parts that it uses, and those that they use.
func assemble(file string) string {
	return insert(source(file))
}

func insert(text string) string {
	return use.ReplaceAllStringFunc(text, func(line string) string {
		names := use.FindStringSubmatch(line)
		_, part, ok := strings.Cut(source(names[1]), "\n--@ "+names[2]+"\n")
		if !ok {
			panic(fmt.Sprintf("redisstore: lua/%s.lua has no part %s", names[1], names[2]))
		}
		if end := partStart.FindStringIndex(part); end != nil {
			part = part[:end[0]]
		}
		return insert(part)
	})
}

var partStart = regexp.MustCompile(`(?m)^--@ [a-z]+\n`)

func source(file string) string {
	b, err := luaFiles.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}
