package redisstore

// How a server runs the Lua: as functions of the library (FCALL), or as scripts (EVALSHA).

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// head is how many arguments a command has before the keys: its name, the program, and the number
// of keys.
const head = 3

// A program is take.lua or amend.lua, as a function and as a script. A command runs it.
type program struct {
	function string // for FCALL
	source   string // for EVAL
	digest   string // of the source, for EVALSHA
}

// A server is what the store knows of a Redis server: whether the server runs the programs as
// functions. The store sends charges as scripts until it knows that the server has the library,
// that the code of the library is ours, and that it runs. To find that out, the store sends
// commands that charge nothing. So no charge is sent to try functions, and no charge is made twice,
// whatever the words in which a server or a proxy refuses functions.
type server struct {
	functions atomic.Bool
	looked    atomic.Int64 // when the server was last inspected, in nanoseconds since 1970
	next      atomic.Int64 // when to inspect it again
	load      atomic.Int64 // when to load the library again, after a load has failed
	lost      atomic.Bool  // the server had the library, and then lacked it
	said      sync.Map     // the codes that have been logged
}

// A server is inspected again after one of these times:
//
//   - findFunctions, if it runs functions
//   - findScripts, if it only runs scripts, or refuses both
//   - findAnswer, if a command failed for another reason, such as that the server has lost the
//     library, is out of memory, or is a replica
const (
	findFunctions = 10 * time.Minute
	findScripts   = time.Minute
	findAnswer    = time.Second
)

// server returns what the store knows of the server at an address.
func (w *wire) server(address string) *server {
	found, ok := w.servers.Load(address)
	if !ok {
		found, _ = w.servers.LoadOrStore(address, new(server))
	}
	return found.(*server)
}

// run runs a program, and returns its reply. It sets the first two of the arguments. If it is time
// to inspect the server, another goroutine inspects it.
func (w *wire) run(send batch.Send, p *program, args []any) ([]any, error) {
	key, _ := args[head].(string)
	s := w.server(w.batches.Server(key))
	if now, next := time.Now(), s.next.Load(); !w.options.NoFunctions && now.UnixNano() >= next && s.next.CompareAndSwap(next, now.Add(findScripts).UnixNano()) {
		own, _, _ := strings.Cut(key, "}")
		go w.batches.Ask(key, func(send batch.Send) error { return w.inspect(send, s, own+"}") })
	}
	if s.functions.Load() {
		args[0], args[1] = "fcall", p.function
		reply, err := send(args, head)
		switch {
		case err == nil:
			return reply, nil
		case unloaded(err):
			s.functions.Store(false)
			s.lost.Store(true)
			s.next.Store(s.looked.Load() + int64(findAnswer)) // one of two servers behind a proxy may have it
		case !asScript(err):
			s.next.Store(min(s.next.Load(), time.Now().Add(findAnswer).UnixNano()))
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

// inspect finds out whether a server runs functions or scripts, and whether a command may have keys
// of several users. It charges nothing, because it peeks at keys that no user has. The argument key
// is such a key, in a slot of the server.
func (w *wire) inspect(send batch.Send, s *server, key string) error {
	if key == "" {
		return nil
	}
	s.looked.Store(time.Now().UnixNano())
	lacks, wait := errNoFunctions, findFunctions
	if !w.options.NoFunctions {
		lacks = w.findLibrary(send, s, key)
	}
	if lacks != nil {
		if wait = findScripts; asScript(lacks) { // a replica may be promoted
			wait = findAnswer
		}
		if err := w.try(send, "eval", take.source, key); err != nil {
			if refuses(err) {
				s.say("redisstore: Redis runs neither functions nor scripts, so it decides nothing; permit +evalsha and +eval, on Alibaba Cloud set script_check_enable to 0", "redis-no-scripts", brief{err})
			} else {
				wait = findAnswer
			}
			s.next.Store(time.Now().Add(wait).UnixNano())
			return fmt.Errorf("the server runs neither functions (%w) nor scripts (%w): permit +evalsha and +eval, on Alibaba Cloud set script_check_enable to 0, or connect to Redis without the proxy before it", brief{lacks}, brief{err})
		}
	}
	s.functions.Store(lacks == nil)
	s.next.Store(time.Now().Add(wait).UnixNano())
	if (s.lost.Swap(false) || lacks != nil) && !w.batches.Sharded() && w.severalServers(send) {
		w.batches.SendApart()
	}
	return nil
}

// If the server does not have the library, findLibrary tries to load it. If the library cannot be
// used, findLibrary returns an error. A program that may load libraries can replace this one by a
// library of the same name. Therefore findLibrary compares the code.
func (w *wire) findLibrary(send batch.Send, s *server, key string) error {
	list := func() (string, error) {
		reply, err := send([]any{"function", "list", "libraryname", "tailcut_" + version, "withcode"}, 0)
		if err != nil {
			return "", err
		}
		return codeOf(reply)
	}
	code, err := list()
	if err == nil && code == "" {
		if time.Now().UnixNano() < s.load.Load() {
			return errNoFunctions
		}
		_, failed := send([]any{"function", "load", library}, 0)
		if code, err = list(); err == nil && code == "" { // unless another process was faster
			s.load.Store(time.Now().Add(findFunctions).UnixNano())
			s.say("redisstore: Redis runs scripts, which take up to twice the CPU time, because the library of functions cannot be loaded; have an administrator load it, as the package documentation says", "redis-no-library", failed)
			return cmp.Or(failed, errNoFunctions)
		}
	}
	switch {
	case err != nil:
		return err
	case code != library:
		err = errors.New("a library of functions has the name of this one and other code")
		s.say("redisstore: somebody has replaced the library of functions on Redis, so scripts are run; find out who may use FUNCTION LOAD, and delete the library", "redis-foreign-library", err)
		return err
	}
	return w.try(send, "fcall", take.function, key)
}

var errNoFunctions = errors.New("not used")

// codeOf returns the code of the library in a reply of FUNCTION LIST. If the server has no such
// library, it returns "".
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

// say logs what is wrong about a server, once for each code.
func (s *server) say(what, code string, err error) {
	if _, again := s.said.LoadOrStore(code, true); !again {
		slog.Default().Warn(what, "code", code, "error", err)
	}
}

// refuses reports whether an error says that the server does not allow a command. It reports false
// for an error that can pass, such as LOADING or NOAUTH.
func refuses(err error) bool {
	code, _, _ := strings.Cut(err.Error(), " ")
	return batch.IsReply(err) && (code == "ERR" || code == "NOPERM" || code != strings.ToUpper(code))
}

// unloaded reports whether an error says that the server lacks the library or the script. Then the
// server has run nothing.
func unloaded(err error) bool {
	return redis.HasErrorPrefix(err, "Function not found") || redis.HasErrorPrefix(err, "NOSCRIPT")
}

// asScript reports whether an error of FCALL says that nothing was run, and that a script may still
// answer. If Redis is out of memory or a replica, it runs no function that may write. It does run a
// script, until the script writes. Peeks and most refusals do not write.
func asScript(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "READONLY")
}
