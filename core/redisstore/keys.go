package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
)

// maxPart bounds the user and the action in a key, in escaped bytes. A longer one is replaced
// by its digest.
const maxPart = 128

// A digest begins with a tag. In other parts a tag at the beginning is escaped, so that no
// user's name can look like a digest.
const (
	tagDigest = '~' // SHA-256
	tagSecret = '^' // HMAC-SHA-256 under Options.Secret
)

// allActions replaces the action in the key of a limit that counts all of a user's actions.
const allActions = "*:"

const hexDigits = "0123456789ABCDEF"

func (s *Store) keys(user, action string, limits []core.Limit) []string {
	return s.appendKeys(nil, user, action, limits)
}

func (s *Store) appendKeys(keys []string, user, action string, limits []core.Limit) []string {
	var few [128]byte
	b := s.appendUser(few[:0], user)
	own := len(b)
	b = append(appendPart(b, action), ':')
	shared := len(b)
	for i := range limits {
		identity := limits[i].Identity()
		if s.cell {
			identity = cellIdentity(limits[i])
		}
		if limits[i].IsPerUser() {
			keys = append(keys, string(b[:own])+allActions+identity)
		} else {
			keys = append(keys, string(append(b[:shared], identity...)))
		}
	}
	return keys
}

// appendUser appends the beginning of the keys of a user. The action and the limit's identity
// follow. Any two users, actions and limits have different keys, whatever their bytes.
// Keys are valid UTF-8. They have one pair of braces, around the user, so that all limits of
// a user are in one cluster slot, which the user cannot choose.
func (s *Store) appendUser(b []byte, user string) []byte {
	b = append(b, s.prefix...)
	b = append(b, ":{"...)
	if s.secret != nil {
		mac := hmac.New(sha256.New, s.secret)
		hashString(mac, user)
		b = appendDigest(b, tagSecret, mac.Sum(nil))
	} else {
		b = appendPart(b, user)
	}
	return append(b, "}:"...)
}

func appendPart(b []byte, part string) []byte {
	start, i := len(b), 0
	for i < min(len(part), maxPart) && plain[part[i]] {
		i++
	}
	b = append(b, part[:i]...)
	for i < len(part) {
		if len(b)-start > maxPart {
			break
		}
		c := part[i]
		if c < utf8.RuneSelf {
			if plain[c] || i > 0 && (c == tagDigest || c == tagSecret) {
				b = append(b, c)
			} else {
				b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(part[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsGraphic(r) {
			for _, c := range []byte(part[i : i+size]) {
				b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
			}
		} else {
			b = append(b, part[i:i+size]...)
		}
		i += size
	}
	if len(b)-start > maxPart {
		sum := sha256.New()
		hashString(sum, part)
		return appendDigest(b[:start], tagDigest, sum.Sum(nil))
	}
	return b
}

// plain says which bytes are never escaped: those that are printable, are no tag, and have no
// meaning in a key or in a pattern of redis-cli.
var plain = func() (plain [256]bool) {
	for c := ' ' + 1; c < 0x7f; c++ {
		plain[c] = !strings.ContainsRune(`~^%:{}*?[]\"'`, c)
	}
	return plain
}()

// hashString hashes a string of any length without a copy of it.
func hashString(h hash.Hash, s string) {
	var few [512]byte
	for len(s) > 0 {
		n := copy(few[:], s)
		h.Write(few[:n])
		s = s[n:]
	}
}

func appendDigest(b []byte, tag byte, sum []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(append(b, tag), sum)
}
