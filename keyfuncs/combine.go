package keyfuncs

// Keys made of several functions' keys.

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

// First returns a function that asks its sources in order and returns the first key: the
// user's if the user is logged in, otherwise the address.
//
//	keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)
//
// It serves Gin and Echo as well: C is the request type of their functions.
//
// Keys of different sources are never equal. A key of the first source stays as it is, but
// a leading ~ is doubled. A key of a later source starts with the source's position:
// 203.0.113.9 of the second is ~2:203.0.113.9, and no user can have that name.
//
// After [ErrNoKey] or an empty key First asks the next source. It returns any other error.
// If no source has a key, the error is ErrNoKey. First panics if there are no sources or one
// is nil.
//
// If the first source has found no key in 1,000 requests, and never one, First logs a
// warning with the code never-a-user, once.
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

// Join returns a function whose key joins the keys of all its parts with colons:
// alice:203.0.113.9 for a user and an address.
//
//	keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP)
//
// It serves Gin and Echo as well: C is the request type of their functions.
//
// Two keys are equal only if they have the same number of parts and all parts are equal.
// So a part that contains a colon or starts with a bracket is put in brackets, and a closing
// bracket in it is doubled: alice:[2001:db8:1:2::/64].
//
// Join returns the first error of a part. If a part is empty, the error is [ErrNoKey]. Join
// panics if there are no parts or one is nil.
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

// checked returns a copy, since the caller may change the slice later.
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
