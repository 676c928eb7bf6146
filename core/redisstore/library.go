package redisstore

// The Lua that runs on the server, and how it gets there.

import (
	"cmp"
	"crypto/sha1"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

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

// A way is how a server runs programs. Charges go by the script until the library is known to be there, to be
// ours, and to run. That is found out beside them, by commands that charge nothing. So however a server or a
// proxy says that it has no functions, no charge is sent for it, or sent twice.
type way struct {
	functions atomic.Bool
	next      atomic.Int64 // when to find out again, in nanoseconds since 1970
	load      atomic.Int64 // not before, since loading the library has failed
	said      atomic.Bool  // that has been logged
}

// Until the way is found out again: of a server with the library, without it, and one that did not answer.
const (
	findFunctions = 10 * time.Minute
	findScripts   = time.Minute
	findAnswer    = time.Second
)

// way returns that of a server.
func (s *Store) way(server string) *way {
	w, ok := s.ways.Load(server)
	if !ok {
		w, _ = s.ways.LoadOrStore(server, new(way))
	}
	return w.(*way)
}

// run runs a program. It fills in the first two arguments.
func (s *Store) run(send batch.Send, p *program, args []any) ([]any, error) {
	key, _ := args[head].(string)
	w := s.way(s.batches.Server(key))
	if now, next := time.Now(), w.next.Load(); !s.options.NoFunctions && now.UnixNano() >= next && w.next.CompareAndSwap(next, now.Add(findScripts).UnixNano()) {
		go s.batches.Ask(key, func(send batch.Send) error { return s.findWay(send, w) })
	}
	if w.functions.Load() {
		args[0], args[1] = "fcall", p.function
		reply, err := send(args, head)
		switch {
		case err == nil:
			return reply, nil
		case unloaded(err):
			w.functions.Store(false)
			w.next.Store(0)
		case !asScript(err):
			w.next.Store(min(w.next.Load(), time.Now().Add(findAnswer).UnixNano()))
			return nil, err
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

// findWay finds out how a server runs programs. It charges nothing: it runs take without a key.
func (s *Store) findWay(send batch.Send, w *way) error {
	lacks, wait := errNoFunctions, findFunctions
	if !s.options.NoFunctions {
		lacks = s.findLibrary(send, w)
	}
	if lacks != nil {
		if wait = findScripts; asScript(lacks) { // a replica may be promoted
			wait = findAnswer
		}
		if _, err := send([]any{"eval", take.source, 0}, 0); err != nil {
			w.next.Store(time.Now().Add(findAnswer).UnixNano())
			return fmt.Errorf("the server runs neither functions (%w) nor scripts (%w): permit +evalsha and +eval, or connect to Redis without the proxy before it", lacks, err)
		}
	}
	w.functions.Store(lacks == nil)
	w.next.Store(time.Now().Add(wait).UnixNano())
	return nil
}

// findLibrary loads the library unless it is there, and reports why it cannot be used. Whoever may load
// libraries can replace it by another of the same name, so its code is compared.
func (s *Store) findLibrary(send batch.Send, w *way) error {
	list := func() (string, error) {
		reply, err := send([]any{"function", "list", "libraryname", "tailcut_" + version, "withcode"}, 0)
		if err != nil {
			return "", err
		}
		return codeOf(reply)
	}
	code, err := list()
	if err == nil && code == "" {
		if time.Now().UnixNano() < w.load.Load() {
			return errNoFunctions
		}
		_, failed := send([]any{"function", "load", library}, 0)
		if code, err = list(); err == nil && code == "" { // unless another process was faster
			w.load.Store(time.Now().Add(findFunctions).UnixNano())
			w.say("redisstore: Redis runs scripts, which take up to twice the CPU time, because the library of functions cannot be loaded; have an administrator load it, as the package documentation says", "redis-no-library", failed)
			return cmp.Or(failed, errNoFunctions)
		}
	}
	switch {
	case err != nil:
		return err
	case code != library:
		err = errors.New("a library of functions has the name of this one and other code")
		w.say("redisstore: somebody has replaced the library of functions on Redis, so scripts are run; find out who may use FUNCTION LOAD, and delete the library", "redis-foreign-library", err)
		return err
	}
	_, err = send([]any{"fcall", take.function, 0}, 0)
	return err
}

var errNoFunctions = errors.New("not used")

// codeOf returns the code of the library that FUNCTION LIST has listed, or "" if there is none.
func codeOf(reply []any) (code string, err error) {
	if len(reply) == 0 {
		return "", nil
	}
	switch fields := reply[0].(type) {
	case map[any]any:
		code, _ = fields["library_code"].(string)
	case []any:
		for i := 1; i < len(fields); i += 2 {
			if fields[i-1] == "library_code" {
				code, _ = fields[i].(string)
			}
		}
	}
	if code == "" {
		return "", ErrReply
	}
	return code, nil
}

// say logs why functions are not used, once for a server.
func (w *way) say(what, code string, err error) {
	if !w.said.Swap(true) {
		slog.Default().Warn(what, "code", code, "error", err)
	}
}

// Library returns the source of the library of functions, for an administrator who loads it on a server
// whose users may not. See the package documentation.
func Library() string { return library }

// unloaded reports whether an error says that the server lacks the library or the script. Nothing was run.
func unloaded(err error) bool {
	return redis.HasErrorPrefix(err, "Function not found") || redis.HasErrorPrefix(err, "NOSCRIPT")
}

// asScript reports whether an error of FCALL says that nothing was run, and the script may
// still answer. A function may write, so if Redis is out of memory or a replica, it refuses the
// function whole. It refuses a script only when that writes, and peeks and refusals do not.
func asScript(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "READONLY")
}
