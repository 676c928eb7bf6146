package redisstore

// The keys of states, and how the name of a user or of an action is written in a key.

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
)

// perUser stands in a key for the action, if the limit counts all actions of a user together.
const perUser = "*:"

// keys returns a key for each limit of a charge, in the order of the limits.
func (w *wire) keys(c *core.Charge) []string {
	keys := make([]string, 0, len(c.Limits))
	for _, p := range c.Parts() {
		keys = w.appendKeys(keys, p.User, p.Action, p.Limits)
	}
	return keys
}

// appendKeys appends a key for each of the limits of a user and an action.
func (w *wire) appendKeys(keys []string, user, action string, limits []core.Limit) []string {
	var buf [128]byte
	b := w.appendUser(buf[:0], user)
	own := len(b)
	b = append(appendPart(b, action), ':')
	shared := len(b)
	for i := range limits {
		identity := limits[i].Identity()
		if limits[i].IsPerUser() {
			keys = append(keys, string(b[:own])+perUser+identity)
		} else {
			keys = append(keys, string(append(b[:shared], identity...)))
		}
	}
	return keys
}

// appendUser appends the beginning of a user's keys: the prefix and the user. The action and the
// limit's identity follow. For example, a key is "tailcut:{alice}:reply:funnel:...". These hold for
// all keys, whatever bytes the names have:
//
//   - The keys of two users, of two actions, or of two limits with different identities differ. But
//     a PerUser limit has one key for all actions.
//   - A key is valid UTF-8.
//   - A key has one pair of braces, around the user or around the user's tag. Therefore all limits
//     of a user are in one slot of a Cluster, and braces in the name of the user do not change the
//     slot.
//   - If the tag is not the user, the user follows after the braces. Therefore two users with the
//     same tag have different keys.
func (w *wire) appendUser(b []byte, user string) []byte {
	b = append(b, w.options.Prefix...)
	b = append(b, ":{"...)
	tag := w.tag(user)
	b = append(w.appendName(b, tag), '}')
	if tag != user {
		b = w.appendName(b, user)
	}
	return append(b, ':')
}

// tag returns the text that the keys of a user have in braces, before it is escaped.
func (w *wire) tag(user string) string {
	if w.options.Tag != nil {
		return cmp.Or(w.options.Tag(user), user)
	}
	return user
}

// maxPart is the largest length of a user or an action in a key, in escaped bytes. A longer name is
// replaced by its digest.
const maxPart = 128

// A digest begins with one of these characters. If another name begins with one of them, that
// character is escaped, so that no name looks like a digest.
const (
	tagDigest = '~' // SHA-256
	tagSecret = '^' // HMAC-SHA-256 under Options.Secret
)

const hexDigits = "0123456789ABCDEF"

// appendName appends the name of a user, or a tag. With Options.Secret it appends an HMAC instead.
func (w *wire) appendName(b []byte, name string) []byte {
	if w.options.Secret == "" {
		return appendPart(b, name)
	}
	mac := hmac.New(sha256.New, []byte(w.options.Secret))
	hashString(mac, name)
	return appendDigest(b, tagSecret, mac.Sum(nil))
}

// appendPart appends the name of a user or an action. It escapes what a key may not have.
func appendPart(b []byte, part string) []byte {
	start := len(b)
	for i, size := 0, 0; i < len(part); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(part[i:])
		whole := plain(r, size) || i > 0 && (r == tagDigest || r == tagSecret)
		for _, c := range []byte(part[i : i+size]) {
			if whole {
				b = append(b, c)
			} else {
				b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		if len(b)-start > maxPart {
			sum := sha256.New()
			hashString(sum, part)
			return appendDigest(b[:start], tagDigest, sum.Sum(nil))
		}
	}
	return b
}

// plain reports whether a character is never escaped. Such a character is valid and printable, does
// not begin a digest, and has no meaning in a key or in a pattern of redis-cli. size is its length
// in bytes.
func plain(r rune, size int) bool {
	if r < utf8.RuneSelf {
		return plainASCII[r]
	}
	return size > 1 && unicode.IsGraphic(r)
}

var plainASCII = func() (set [utf8.RuneSelf]bool) {
	for c := range set {
		set[c] = unicode.IsGraphic(rune(c)) && !strings.ContainsRune(` ~^%:{}*?[]\"'`, rune(c))
	}
	return set
}()

// hashString writes a string of any length to a hash, without a copy of the whole string.
func hashString(h hash.Hash, s string) {
	var buf [512]byte
	for len(s) > 0 {
		n := copy(buf[:], s)
		h.Write(buf[:n])
		s = s[n:]
	}
}

func appendDigest(b []byte, tag byte, sum []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(append(b, tag), sum)
}
