package redisstore

// The Lua that runs on the server, and how it gets there.

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// lua has a file for each machine of package machine, beside them what they share, and the two
// programs: take.lua and amend.lua. Each file is a module. They are concatenated, each in a
// block, so that require makes a module only when it is needed. It also takes the word of a kind
// for the name of its machine. A server that has Redis Functions loads them once, and a program is
// an FCALL. Elsewhere they are sent as a script, which makes its modules anew in each run, at up to
// twice the cost.
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

// head is how many arguments of a program are before its keys: the command, the program, and
// how many keys there are.
const head = 3

// run runs a program. It fills in the first two arguments. If the server lacks the library, or
// the script, nothing was run, and the store sends it.
func (s *Store) run(send batch.Send, p *program, args []any) ([]any, error) {
	if !s.scripts.Load() {
		args[0], args[1] = "fcall", p.function
		reply, err := send(args, head)
		if err != nil && unloaded(err) && s.load(send) {
			reply, err = send(args, head)
		}
		if err == nil || !asScript(err) {
			return reply, err
		}
		if lacksFunctions(err) {
			s.scripts.Store(true)
		}
	}
	args[0], args[1] = "evalsha", p.digest
	reply, err := send(args, head)
	if err != nil && unloaded(err) {
		args[0], args[1] = "eval", p.source
		reply, err = send(args, head)
	}
	return reply, err
}

// load loads the library, and reports whether it is there.
func (s *Store) load(send batch.Send) bool {
	_, err := send([]any{"function", "load", library}, 0)
	if lacksFunctions(err) {
		s.scripts.Store(true)
	}
	return err == nil || redis.HasErrorPrefix(err, "Library 'tailcut_"+version+"' already exists") // another process was faster
}

// unloaded reports whether an error says that the server lacks the library or the script.
func unloaded(err error) bool {
	return redis.HasErrorPrefix(err, "Function not found") || redis.HasErrorPrefix(err, "NOSCRIPT")
}

// lacksFunctions reports whether an error says that the server has no functions, or that the
// user may not use them.
func lacksFunctions(err error) bool {
	return redis.HasErrorPrefix(err, "unknown command") ||
		redis.HasErrorPrefix(err, "NOPERM") && (strings.Contains(err.Error(), "'fcall'") || strings.Contains(err.Error(), "'function"))
}

// asScript reports whether an error of FCALL says that nothing was run, and the script may
// still answer. A function may write, so if Redis is out of memory or a replica, it refuses the
// function whole. It refuses a script only when that writes, and peeks and refusals do not.
func asScript(err error) bool {
	return unloaded(err) || lacksFunctions(err) || redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "READONLY")
}
