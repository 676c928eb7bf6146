package redisstore

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

// maxPart is the largest length of the user and of the action in a key, in escaped bytes. A longer
// one is replaced by its digest.
const maxPart = 128

// A digest begins with a tag. In other parts a tag at the beginning is escaped, so that no
// user's name can look like a digest.
const (
	tagDigest = '~' // SHA-256
	tagSecret = '^' // HMAC-SHA-256 under Options.Secret
)

// perUser replaces the action in the key of a limit that counts all of a user's actions.
const perUser = "*:"

const hexDigits = "0123456789ABCDEF"

// keys returns the keys of the limits of all subjects of a charge.
func (s *wire) keys(c *core.Charge) []string {
	keys := make([]string, 0, len(c.Limits))
	for _, p := range c.Parts() {
		keys = s.appendKeys(keys, p.User, p.Action, p.Limits)
	}
	return keys
}

// appendKeys appends the keys of a user's limits for an action.
func (s *wire) appendKeys(keys []string, user, action string, limits []core.Limit) []string {
	var buf [128]byte
	b := s.appendUser(buf[:0], user)
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

// appendUser appends the beginning of the keys of a user. The action and the limit's identity
// follow. Any two users, actions and limits have different keys, whatever their bytes.
// Keys are valid UTF-8. They have one pair of braces, around the user or their tag, so that all limits of
// a user are in one cluster slot, which the user cannot choose. After a tag that is not the user the
// user follows, before the colon: so whatever the tags are, no two users have one key.
func (s *wire) appendUser(b []byte, user string) []byte {
	b = append(b, s.options.Prefix...)
	b = append(b, ":{"...)
	tag := s.tag(user)
	b = append(s.appendName(b, tag), '}')
	if tag != user {
		b = s.appendName(b, user)
	}
	return append(b, ':')
}

// tag is what the keys of a user have in braces, before it is escaped.
func (s *wire) tag(user string) string {
	if s.options.Tag != nil {
		return cmp.Or(s.options.Tag(user), user)
	}
	return user
}

// appendName appends a user or a tag.
func (s *wire) appendName(b []byte, name string) []byte {
	if s.options.Secret == "" {
		return appendPart(b, name)
	}
	mac := hmac.New(sha256.New, []byte(s.options.Secret))
	hashString(mac, name)
	return appendDigest(b, tagSecret, mac.Sum(nil))
}

// appendPart appends a user or an action.
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

// plain reports whether a character is never escaped: it is valid, printable and not a tag, and it
// has no meaning in a key or in a pattern of redis-cli. size is its length in bytes.
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

// hashString hashes a string of any length without a copy of it.
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
