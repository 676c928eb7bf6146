package redisstore

// The Lua that runs on the server: the files of lua, as a library of functions and as scripts.

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"strings"

	"github.com/tailcut/tailcut/core/machine"
)

// lua has a file for each machine of package machine, files that they share, and two programs:
// take.lua and amend.lua. Each file is a module. The files are concatenated, each in a block, so that
// require makes a module only when it is needed. require also takes the word of a kind, and returns
// the module of the kind's machine.
//
// A server that has Redis Functions loads the modules once, and an FCALL runs a program. Other
// servers get them as a script, which makes its modules anew in each run, at up to twice the cost.
//
//go:embed lua/*.lua
var lua embed.FS

// A program is the entry of the library that a command runs.
type program struct {
	function string // for FCALL
	source   string // for EVAL
	digest   string // of the source, for EVALSHA
}

var modules, version = bundle()

var take, amend = newProgram("take"), newProgram("amend")

// library is the source for FUNCTION LOAD. Its name and those of its functions have its digest,
// so that two versions can be on one server.
var library = fmt.Sprintf("#!lua name=tailcut_%s\n%s", version, modules) +
	register(take, "take") + register(amend, "amend")

func bundle() (text, version string) {
	var b strings.Builder
	b.WriteString("local made, modules = {}, nil\n" +
		"local function require(name)\n" +
		"\tif made[name] == nil then\n\t\tmade[name] = modules(name)\n\tend\n" +
		"\treturn made[name]\nend\n" +
		"function modules(name)\n")
	files, _ := lua.ReadDir("lua") // it is embedded, and cannot fail
	for _, file := range files {
		source, _ := lua.ReadFile("lua/" + file.Name())
		name := strings.TrimSuffix(file.Name(), ".lua")
		fmt.Fprintf(&b, "if name == '%s'", name)
		for kind := range machine.Kinds() {
			if kind.Form().String() == name {
				fmt.Fprintf(&b, " or name == '%s'", kind)
			}
		}
		fmt.Fprintf(&b, " then\n%send\n", source)
	}
	b.WriteString("end\n")
	return b.String(), fmt.Sprintf("%x", sha1.Sum([]byte(b.String())))[:16]
}

func newProgram(module string) *program {
	source := modules + "return require('" + module + "')(KEYS, ARGV)\n"
	return &program{"tailcut_" + version + "_" + module, source, fmt.Sprintf("%x", sha1.Sum([]byte(source)))}
}

// register registers a function. While a library is loaded, Lua's own libraries are missing, so
// its modules are made in the first call.
func register(p *program, module string) string {
	return fmt.Sprintf("local %[2]s\n"+
		"redis.register_function('%[1]s', function(keys, args)\n"+
		"\t%[2]s = %[2]s or require '%[2]s'\n\treturn %[2]s(keys, args)\nend)\n", p.function, module)
}

// Library returns the source of the library of functions, for an administrator who loads it on a server
// whose users may not. See the package documentation.
func Library() string { return library }
