package keyfuncs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var errNoSource = noKey("none of its sources has one")

// First returns a function that asks its sources in turn and answers with the
// first key there is: the user's if he is logged in, otherwise his address.
//
//	keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)
//
// It serves Gin and Echo as well: C is what their functions take.
//
// Keys of different sources are never equal. The first source's stay as they
// are, but for a leading ~, which is doubled; a later one's bear its position:
// the second's 203.0.113.9 is ~2:203.0.113.9, and no user can call himself that.
//
// Only ErrNoKey, or an empty key, leads to the next source; any other error is
// the answer. If no source has a key it is ErrNoKey. First panics if there are
// no sources or one is nil.
func First[C any](sources ...func(C) (string, error)) func(C) (string, error) {
	sources = checked("First", sources)
	tags := make([]string, len(sources))
	for i := range tags {
		tags[i] = "~" + strconv.Itoa(i+1) + ":"
	}
	return func(c C) (string, error) {
		for i, source := range sources {
			key, err := source(c)
			switch {
			case err != nil && !errors.Is(err, ErrNoKey):
				return "", err
			case err != nil || key == "":
				continue
			case i > 0:
				return tags[i] + key, nil
			case key[0] == '~':
				return "~" + key, nil
			}
			return key, nil
		}
		return "", errNoSource
	}
}

// Join returns a function whose key is made of the keys of all its parts, with
// colons between them: of the user and his address, laoqian:203.0.113.9.
//
//	keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP)
//
// It serves Gin and Echo as well: C is what their functions take.
//
// Two keys are equal only if they have the same number of parts and all of
// these are equal. A part that has a colon in it, or starts with a bracket, is
// put in brackets: laoqian:[2001:db8:1:2::/64]; a closing bracket in such a
// part is doubled.
//
// The first error of a part is the error; an empty key is ErrNoKey. Join panics
// if there are no parts or one is nil.
func Join[C any](parts ...func(C) (string, error)) func(C) (string, error) {
	parts = checked("Join", parts)
	return func(c C) (string, error) {
		var buf [128]byte // most keys fit, and the string is all that is allocated
		b := buf[:0]
		for i, part := range parts {
			key, err := part(c)
			if err != nil {
				return "", err
			}
			if key == "" {
				return "", errNoValue
			}
			if i > 0 {
				b = append(b, ':')
			}
			b = appendPart(b, key)
		}
		return string(b), nil
	}
}

// appendPart writes a part so that its end can be told.
func appendPart(b []byte, part string) []byte {
	if part[0] != '[' && strings.IndexByte(part, ':') < 0 {
		return append(b, part...)
	}
	b = append(b, '[')
	for {
		i := strings.IndexByte(part, ']')
		if i < 0 {
			break
		}
		b = append(b, part[:i+1]...)
		b = append(b, ']')
		part = part[i+1:]
	}
	b = append(b, part...)
	return append(b, ']')
}

// checked returns a copy, so that the caller's slice may change.
func checked[C any](maker string, fs []func(C) (string, error)) []func(C) (string, error) {
	if len(fs) == 0 {
		panic("keyfuncs: " + maker + " needs functions to ask, such as Header and RemoteIP; give it at least one")
	}
	for i, f := range fs {
		if f == nil {
			panic(fmt.Sprintf("keyfuncs: %s: function %d is nil; give it one that reads a key", maker, i+1))
		}
	}
	return slices.Clone(fs)
}
