package redisstore

// Whether a command may have keys of several users. Some proxies refuse such a command, or send it to the
// server of its first key.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// A refusal is in what words a server refuses keys of several users in one command.
type refusal struct {
	mu    sync.Mutex
	words string    // "" if it does not
	asked time.Time // when it was last found out
}

// try runs a program at a key, and at another one in the same command. If the server refuses them because they are
// together, every call is sent alone from then on.
func (w *wire) try(send batch.Send, command, name, key string) error {
	if w.batches.Sharded() {
		return w.peek(send, command, name, key)
	}
	refusal, err := w.compare(send, command, name, key, w.ownKey(""))
	if refusal != nil {
		w.batches.SendApart()
	}
	return err
}

// refusesTogether reports whether a server has refused charges only because keys of several users were together. In its
// own words it does so if it refuses a peek at them in the same words, and answers one at the first of them: an error
// that may come after the charge, such as that a server is lost, does not depend on the keys. That is found out at most
// once a second.
func (w *wire) refusesTogether(send batch.Send, calls []*batch.Call, err error) bool {
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
	r := &w.refusal
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.words != err.Error() && time.Since(r.asked) > findAnswer {
		r.asked = time.Now()
		command, name := "eval", take.source
		if w.server(w.batches.Server(keys[0])).functions.Load() {
			command, name = "fcall", take.function
		}
		if refusal, _ := w.compare(send, command, name, keys...); refusal != nil {
			r.words = refusal.Error()
		}
	}
	return r.words == err.Error()
}

// compare peeks at keys in one command, and then at the first of them alone. err is the error of
// the second peek. If the server refuses the keys only in one command, refusal is the text of that
// error. The server must refuse them twice, because a server that failed the first time may have
// recovered.
func (w *wire) compare(send batch.Send, command, name string, keys ...string) (refusal, err error) {
	refusal = w.peek(send, command, name, keys...)
	if !isReply(refusal) {
		return nil, refusal
	}
	if err = w.peek(send, command, name, keys[0]); err != nil {
		return nil, err
	}
	if again := w.peek(send, command, name, keys...); again == nil || again.Error() != refusal.Error() {
		return nil, nil
	}
	return refusal, nil
}

// peek looks at keys as at those of a FixedWindow. It does not matter what they hold.
func (w *wire) peek(send batch.Send, command, name string, keys ...string) error {
	_, err := send(append(box([]any{command, name, len(keys)}, keys), "p fixed 1,1,1000000"), head)
	return err
}

// ownKey returns a key on a server that no user has. Keys of users have a colon after the brace,
// and this key has none. If the server has no slots, ownKey returns "".
func (w *wire) ownKey(server string) string {
	for range 10_000 {
		key := fmt.Sprintf("%s:{%d}", w.options.Prefix, rand.Uint64())
		if w.batches.Server(key) == server {
			return key
		}
	}
	return ""
}

// severalServers reports whether a proxy sends a command to one of several servers by its first
// key, and does not look at the other keys. The address of a table in a server's Lua tells servers
// apart. If the address differs between two commands with one key, it proves nothing: either it
// always differs, as on miniredis, or another server has taken over.
func (w *wire) severalServers(send batch.Send) bool {
	table := func(key string) (address string) {
		reply, err := send([]any{"eval", "return tostring(redis)", 1, key}, head)
		if err == nil {
			address, _ = reply[0].(string)
		}
		return address
	}
	own := w.ownKey("")
	first, several := table(own), false
	for i := 0; i < 8 && first != "" && table(own) == first; i++ {
		if several {
			return true
		}
		key := w.ownKey("")
		address := table(key)
		several = address != "" && address != first && address == table(key)
	}
	return false
}
