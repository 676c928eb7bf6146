package redisstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The scripts are lua/take.lua and lua/refund.lua, with parts of the other files inserted. There
// is a file for each machine, which begins with its arguments and its reply. A line "--@ name"
// begins a part of a file, and a line "--@ file.name" inserts a part. Names in capitals that
// stand for numbers are constants: assemble replaces them wherever they stand, which saves 2 %
// of a single decision.
//
//go:embed lua/*.lua
var luaFiles embed.FS

var (
	takeSource, refundSource     = assemble("take"), assemble("refund")
	takeHash, refundHash     any = redis.NewScript(takeSource).Hash(), redis.NewScript(refundSource).Hash()
)

var (
	use       = regexp.MustCompile(`(?m)^\t*--@ ([a-z]+)\.([a-z]+)\n`)
	partStart = regexp.MustCompile(`(?m)^--@ [a-z]+\n`)
	constants = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)\n`)
)

// assemble returns a file with all parts inserted.
func assemble(file string) string {
	text := insert(source(file))
	var numbers []string // each after its name
	text = constants.ReplaceAllStringFunc(text, func(line string) string {
		part := constants.FindStringSubmatch(line)
		values := strings.Split(part[2], ", ")
		for i, name := range strings.Split(part[1], ", ") {
			numbers = append(numbers, name, values[i])
		}
		return ""
	})
	for i := 0; i < len(numbers); i += 2 {
		text = regexp.MustCompile(`\b`+numbers[i]+`\b`).ReplaceAllString(text, numbers[i+1])
	}
	return text
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

func source(file string) string {
	b, err := luaFiles.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}
