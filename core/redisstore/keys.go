package redisstore

// How the name of a user or of an action is written in a key.

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
