package redisstore

// The Lua that runs on the server, and how it gets there.

import (
	"cmp"
	"crypto/sha1"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
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

// head is the number of arguments before the keys: the command, the program, and the number of
// keys.
const head = 3

// A way is how a server runs programs: by functions or by scripts. Charges are sent as scripts
// until it is known that the server has the library, that its code is ours, and that it runs.
// Commands that charge nothing find that out. So it does not matter in which words a server or
// proxy refuses functions: no charge is sent to find out, and none is sent twice.
type way struct {
	functions atomic.Bool
	looked    atomic.Int64 // when it was last found out, in nanoseconds since 1970
	next      atomic.Int64 // when to find out again
	load      atomic.Int64 // not before, since loading the library has failed
	lost      atomic.Bool  // the library was there, and then it was not
	said      sync.Map     // the codes that have been logged
}

// Until the way is found out again: of a server with the library, of one without it or which refuses scripts too,
// and of one that did not answer or has lost the library.
const (
	findFunctions = 10 * time.Minute
	findScripts   = time.Minute
	findAnswer    = time.Second
)

// A refusal is in what words a server refuses keys of several users in one command.
type refusal struct {
	mu    sync.Mutex
	words string    // "" if it does not
	asked time.Time // when it was last found out
}

// way returns that of a server.
func (s *wire) way(server string) *way {
	w, ok := s.ways.Load(server)
	if !ok {
		w, _ = s.ways.LoadOrStore(server, new(way))
	}
	return w.(*way)
}

// run runs a program. It fills in the first two arguments.
func (s *wire) run(send batch.Send, p *program, args []any) ([]any, error) {
	key, _ := args[head].(string)
	w := s.way(s.batches.Server(key))
	if now, next := time.Now(), w.next.Load(); !s.options.NoFunctions && now.UnixNano() >= next && w.next.CompareAndSwap(next, now.Add(findScripts).UnixNano()) {
		own, _, _ := strings.Cut(key, "}")
		go s.batches.Ask(key, func(send batch.Send) error { return s.findWay(send, w, own+"}") })
	}
	if w.functions.Load() {
		args[0], args[1] = "fcall", p.function
		reply, err := send(args, head)
		switch {
		case err == nil:
			return reply, nil
		case unloaded(err):
			w.functions.Store(false)
			w.lost.Store(true)
			w.next.Store(w.looked.Load() + int64(findAnswer)) // one of two servers behind a proxy may have it
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

// findWay finds out how a server runs programs, and whether keys of several users can be in one command. It charges
// nothing: it peeks at keys that no user has. The first is in a slot of the server.
func (s *wire) findWay(send batch.Send, w *way, key string) error {
	if key == "" {
		return nil
	}
	w.looked.Store(time.Now().UnixNano())
	lacks, wait := errNoFunctions, findFunctions
	if !s.options.NoFunctions {
		lacks = s.findLibrary(send, w, key)
	}
	if lacks != nil {
		if wait = findScripts; asScript(lacks) { // a replica may be promoted
			wait = findAnswer
		}
		if err := s.try(send, "eval", take.source, key); err != nil {
			if refuses(err) {
				w.say("redisstore: Redis runs neither functions nor scripts, so it decides nothing; permit +evalsha and +eval, on Alibaba Cloud set script_check_enable to 0", "redis-no-scripts", brief{err})
			} else {
				wait = findAnswer
			}
			w.next.Store(time.Now().Add(wait).UnixNano())
			return fmt.Errorf("the server runs neither functions (%w) nor scripts (%w): permit +evalsha and +eval, on Alibaba Cloud set script_check_enable to 0, or connect to Redis without the proxy before it", brief{lacks}, brief{err})
		}
	}
	w.functions.Store(lacks == nil)
	w.next.Store(time.Now().Add(wait).UnixNano())
	if (w.lost.Swap(false) || lacks != nil) && !s.batches.Sharded() && s.severalServers(send) {
		s.batches.SendApart()
	}
	return nil
}

// severalServers reports whether a proxy sends a command to one of several servers by its first
// key, and does not look at the other keys. The address of a table in a server's Lua tells servers
// apart. If the address differs between two commands with one key, it proves nothing: either it
// always differs, as on miniredis, or another server has taken over.
func (s *wire) severalServers(send batch.Send) bool {
	table := func(key string) (address string) {
		reply, err := send([]any{"eval", "return tostring(redis)", 1, key}, head)
		if err == nil {
			address, _ = reply[0].(string)
		}
		return address
	}
	own := s.ownKey("")
	first, several := table(own), false
	for i := 0; i < 8 && first != "" && table(own) == first; i++ {
		if several {
			return true
		}
		key := s.ownKey("")
		address := table(key)
		several = address != "" && address != first && address == table(key)
	}
	return false
}

// try runs a program at a key, and at another one in the same command. If the server refuses them because they are
// together, every call is sent alone from then on.
func (s *wire) try(send batch.Send, command, name, key string) error {
	if s.batches.Sharded() {
		return s.peek(send, command, name, key)
	}
	refusal, err := s.compare(send, command, name, key, s.ownKey(""))
	if refusal != nil {
		s.batches.SendApart()
	}
	return err
}

// compare peeks at keys in one command, and then at the first of them alone. err is the error of
// the second peek. If the server refuses the keys only in one command, refusal is the text of that
// error. The server must refuse them twice, because a server that failed the first time may have
// recovered.
func (s *wire) compare(send batch.Send, command, name string, keys ...string) (refusal, err error) {
	refusal = s.peek(send, command, name, keys...)
	if !isReply(refusal) {
		return nil, refusal
	}
	if err = s.peek(send, command, name, keys[0]); err != nil {
		return nil, err
	}
	if again := s.peek(send, command, name, keys...); again == nil || again.Error() != refusal.Error() {
		return nil, nil
	}
	return refusal, nil
}

// peek looks at keys as at those of a FixedWindow. It does not matter what they hold.
func (s *wire) peek(send batch.Send, command, name string, keys ...string) error {
	_, err := send(append(box([]any{command, name, len(keys)}, keys), "p fixed 1,1,1000000"), head)
	return err
}

// ownKey returns a key on a server that no user has. Keys of users have a colon after the brace,
// and this key has none. If the server has no slots, ownKey returns "".
func (s *wire) ownKey(server string) string {
	for range 10_000 {
		key := fmt.Sprintf("%s:{%d}", s.options.Prefix, rand.Uint64())
		if s.batches.Server(key) == server {
			return key
		}
	}
	return ""
}

// findLibrary loads the library unless it is there, and reports why it cannot be used. Whoever may load
// libraries can replace it by another of the same name, so its code is compared.
func (s *wire) findLibrary(send batch.Send, w *way, key string) error {
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
	return s.try(send, "fcall", take.function, key)
}

// refusesTogether reports whether a server has refused charges only because keys of several users were together. In its
// own words it does so if it refuses a peek at them in the same words, and answers one at the first of them: an error
// that may come after the charge, such as that a server is lost, does not depend on the keys. That is found out at most
// once a second.
func (s *wire) refusesTogether(send batch.Send, calls []*batch.Call, err error) bool {
	if !isReply(err) {
		return false
	}
	var keys []string
	for _, c := range calls {
		keys = append(keys, c.Keys...)
	}
	tag, _, _ := strings.Cut(keys[0], "}")
	if !slices.ContainsFunc(keys, func(k string) bool { return !strings.HasPrefix(k, tag+"}") }) {
		return false
	}
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		return true
	}
	r := &s.refusal
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.words != err.Error() && time.Since(r.asked) > findAnswer {
		r.asked = time.Now()
		command, name := "eval", take.source
		if s.way(s.batches.Server(keys[0])).functions.Load() {
			command, name = "fcall", take.function
		}
		if refusal, _ := s.compare(send, command, name, keys...); refusal != nil {
			r.words = refusal.Error()
		}
	}
	return r.words == err.Error()
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

// say logs what is wrong about a server, once.
func (w *way) say(what, code string, err error) {
	if _, again := w.said.LoadOrStore(code, true); !again {
		slog.Default().Warn(what, "code", code, "error", err)
	}
}

// Library returns the source of the library of functions, for an administrator who loads it on a server
// whose users may not. See the package documentation.
func Library() string { return library }

// refuses reports whether an error says that the server does not allow a command. It reports false
// for errors of a state that ends, such as LOADING or NOAUTH.
func refuses(err error) bool {
	code, _, _ := strings.Cut(err.Error(), " ")
	return isReply(err) && (code == "ERR" || code == "NOPERM" || code != strings.ToUpper(code))
}

// isReply reports whether an error is Redis's reply.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

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
