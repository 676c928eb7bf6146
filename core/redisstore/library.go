package redisstore

// The Lua that runs on the server. The files of lua become a library of functions, and scripts.

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"strings"

	"github.com/tailcut/tailcut/core/machine"
)

// lua has a file for each machine of package machine, files that the machines share, and the two
// programs take.lua and amend.lua. Each file is a module. bundle puts all files into one text, each
// in a block. The Lua function require makes a module when the module is first needed. It also
// takes the name of a kind, and then returns the module of the kind's machine.
//
// A server that has Redis Functions makes the modules once, and an FCALL runs a program. Another
// server gets the text as a script, which makes its modules anew in each run. That costs up to
// twice as much.
//
//go:embed lua/*.lua
var lua embed.FS

var modules, version = bundle()

var take, amend = newProgram("take"), newProgram("amend")

// library is the source for FUNCTION LOAD. The name of the library and the names of its functions
// have a digest of the source, so that two versions can be on one server.
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

// register returns the Lua that registers a program as a function. While Redis loads a library,
// Lua's standard libraries such as string are missing. Therefore the first call makes the modules.
func register(p *program, module string) string {
	return fmt.Sprintf("local %[2]s\n"+
		"redis.register_function('%[1]s', function(keys, args)\n"+
		"\t%[2]s = %[2]s or require '%[2]s'\n\treturn %[2]s(keys, args)\nend)\n", p.function, module)
}

// Library returns the source of the library of functions. If the store's Redis user may not load
// libraries, an administrator loads this one: see the package documentation.
func Library() string { return library }
