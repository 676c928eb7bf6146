package redisstore

// This file finds out whether a command may have keys of several users. Some proxies refuse such a
// command, or send it to the server of its first key.

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

// A refusal has the words in which a server refuses a command with keys of several users.
type refusal struct {
	mu    sync.Mutex
	words string    // "" as long as the server has refused none
	asked time.Time // when the store last tried
}

// try has a program peek at the given key and at a second key, in one command. If the server
// refuses the command only because it has two keys, the queue sends every later call alone. If the
// queue does that already, try peeks at the given key alone. try returns an error if the program
// cannot peek at that key.
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

// refusesTogether reports whether a server has refused charges only because their command has keys
// of several users. The argument err is the error of that command. If it is CROSSSLOT, and the keys
// have several tags, refusesTogether reports true. A proxy may refuse several keys in other words.
// To learn these words, the store peeks at the keys in one command, and then at the first key
// alone. If only the first peek is refused, the store has the words, and compares err with them. It
// peeks at most once a second. A proxy may also answer that it has lost the server, perhaps after
// the charge. Such an error does not depend on the keys, so refusesTogether reports false.
func (w *wire) refusesTogether(send batch.Send, calls []*batch.Call, err error) bool {
	if !batch.IsReply(err) {
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

// compare peeks at all keys in one command. If the server refuses that command, compare peeks at
// the first key alone. If the server answers, compare sends the first command again, because a
// server that failed the first time may have recovered. If the server refuses it again in the same
// words, refusal is that error. If another peek failed, err usually says why.
func (w *wire) compare(send batch.Send, command, name string, keys ...string) (refusal, err error) {
	refusal = w.peek(send, command, name, keys...)
	if !batch.IsReply(refusal) {
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

// peek sends a peek at keys, as if they had states of a FixedWindow. The values of the keys do not
// matter.
func (w *wire) peek(send batch.Send, command, name string, keys ...string) error {
	_, err := send(append(box([]any{command, name, len(keys)}, keys), "p fixed 1,1,1000000"), head)
	return err
}

// ownKey returns a key that is on the given server, and that no user has: the key of a user has a
// colon after the braces, and this key has none. If ownKey finds no such key, it returns "", for
// example because the server has no slots of the Cluster.
func (w *wire) ownKey(server string) string {
	for range 10_000 {
		key := fmt.Sprintf("%s:{%d}", w.options.Prefix, rand.Uint64())
		if w.batches.Server(key) == server {
			return key
		}
	}
	return ""
}

// severalServers reports whether a proxy sends a command to the server of its first key, and
// ignores the other keys. The address of a table in a server's Lua tells servers apart: two keys on
// two servers have two addresses. But the addresses prove nothing if two commands with one key have
// different addresses. That happens on miniredis, whose address always differs, and if another
// server has taken over.
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
