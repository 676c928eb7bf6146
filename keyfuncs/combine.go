package keyfuncs

// First and Join make one key function from several.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core/notice"
)

var errNoSource = noKey("none of the functions of First found one")

// First returns a function that calls its sources in order and returns the first key that it finds.
// For example, the key is the user's if the user is logged in, and otherwise the address:
//
//	keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)
//
// First works for Gin and Echo as well. C is the type of their requests.
//
// Keys of two sources are never equal. A key of the first source stays as it is, except that a
// leading ~ is doubled. A key of a later source starts with the position of the source. For
// example, 203.0.113.9 from the second source becomes ~2:203.0.113.9. No user of the first source
// can have that key.
//
// If a source returns [ErrNoKey] or an empty key, First calls the next source. If a source returns
// another error, First returns that error. If no source has a key, the error is ErrNoKey. First
// panics if there are no sources or a source is nil.
//
// If the first source finds no key in the first 1,000 requests, First logs one warning, with the
// code never-a-user.
func First[C any](sources ...func(C) (string, error)) func(C) (string, error) {
	sources = checked("First", sources)
	first := new(notice.Never)
	return func(c C) (string, error) {
		for i, source := range sources {
			key, err := source(c)
			switch {
			case err != nil && !errors.Is(err, ErrNoKey):
				return "", err
			case err != nil || key == "":
				if i == 0 && first.Due(manyMisses) {
					warn("never-a-user", fmt.Sprintf(
						"the first function of a First has found no key in %d requests, and never one, so all these users are keyed by a later function; is the limit mounted before the login?", manyMisses),
						"first", cmp.Or(err, ErrNoKey), "route", routeOf(c))
				}
				continue
			case i > 0:
				return "~" + strconv.Itoa(i+1) + ":" + key, nil
			}
			first.Seen()
			if key[0] == '~' {
				return "~" + key, nil
			}
			return key, nil
		}
		return "", errNoSource
	}
}

var errEmptyPart = noKey("a part of Join is empty")

// Join returns a function that calls all parts and joins their keys with colons. For example, the
// key of a user and an address is alice:203.0.113.9:
//
//	keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP)
//
// Join works for Gin and Echo as well. C is the type of their requests.
//
// Two joined keys are equal only if they have the same number of parts and all parts are equal. For
// this, Join puts a part in brackets if the part contains a colon or starts with a bracket, as in
// alice:[2001:db8:1:2::/64]. A closing bracket inside such a part is doubled.
//
// If a part returns an error, Join returns the first one. If a part is empty, the error is
// [ErrNoKey]. Join panics if there are no parts or a part is nil.
func Join[C any](parts ...func(C) (string, error)) func(C) (string, error) {
	parts = checked("Join", parts)
	return func(c C) (string, error) {
		keys := make([]string, len(parts))
		for i, part := range parts {
			key, err := part(c)
			if err != nil {
				return "", err
			}
			if key == "" {
				return "", errEmptyPart
			}
			if key[0] == '[' || strings.Contains(key, ":") {
				key = "[" + strings.ReplaceAll(key, "]", "]]") + "]"
			}
			keys[i] = key
		}
		return strings.Join(keys, ":"), nil
	}
}

// checked returns a copy of fs, because the caller may change the slice later. It panics if fs is
// empty or a function is nil.
func checked[C any](maker string, fs []func(C) (string, error)) []func(C) (string, error) {
	if len(fs) == 0 {
		panic("keyfuncs: " + maker + " needs at least one function, such as RemoteIP")
	}
	for i, f := range fs {
		if f == nil {
			panic(fmt.Sprintf("keyfuncs: %s: function %d is nil; use one that reads a key, such as RemoteIP", maker, i+1))
		}
	}
	return slices.Clone(fs)
}
