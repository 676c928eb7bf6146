package keyfuncs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// A source is a function of a framework's own named type, as Gin's and Echo's
// adapters have them.
type source func(int) (string, error)

func says(key string) source                   { return func(int) (string, error) { return key, nil } }
func fails(err error) source                   { return func(int) (string, error) { return "", err } }
func missing() source                          { return fails(fmt.Errorf("wrapped: %w", keyfuncs.ErrNoKey)) }
func plain(s source) func(int) (string, error) { return s }

func sourcesOf(keys ...string) (fs []func(int) (string, error)) {
	for _, key := range keys {
		fs = append(fs, plain(says(key)))
	}
	return fs
}

func TestFirst(t *testing.T) {
	other := errors.New("the database is down")
	for _, tt := range []struct {
		name string
		f    func(int) (string, error)
		want string
		err  error
	}{
		{"the_first_key_stays_as_it_is", keyfuncs.First(says("alice"), says("x")), "alice", nil},
		{"a_later_one_bears_its_position", keyfuncs.First(missing(), says("203.0.113.9")), "~2:203.0.113.9", nil},
		{"after_which_none_is_asked", keyfuncs.First(says("alice"), func(int) (string, error) { panic("asked") }), "alice", nil},
		{"in_decimal", keyfuncs.First(append(slices.Repeat([]func(int) (string, error){missing()}, 11), says("x"))...), "~12:x", nil},
		{"a_user_cannot_call_himself_an_address", keyfuncs.First(says("~2:203.0.113.9"), says("x")), "~~2:203.0.113.9", nil},
		{"a_leading_tilde_is_doubled", keyfuncs.First(says("~")), "~~", nil},
		{"once", keyfuncs.First(says("~~x")), "~~~x", nil},
		{"another_tilde_is_not", keyfuncs.First(says("a~b")), "a~b", nil},
		{"a_later_tilde_neither", keyfuncs.First(missing(), says("~x")), "~2:~x", nil},
		{"an_empty_key_is_no_key", keyfuncs.First(says(""), says(""), says("x")), "~3:x", nil},
		{"a_key_with_ErrNoKey_is_no_key", keyfuncs.First(func(int) (string, error) { return "x", keyfuncs.ErrNoKey }, says("y")), "~2:y", nil},
		{"ErrBadKey_ends_it", keyfuncs.First(fails(keyfuncs.ErrBadKey), says("x")), "", keyfuncs.ErrBadKey},
		{"any_other_error_ends_it", keyfuncs.First(missing(), fails(other), says("x")), "", other},
		{"a_key_with_an_error_is_the_error", keyfuncs.First(func(int) (string, error) { return "x", other }, says("y")), "", other},
		{"no_key_at_all_is_ErrNoKey", keyfuncs.First(missing(), says("")), "", keyfuncs.ErrNoKey},
		{"a_first_in_a_first", keyfuncs.First(keyfuncs.First(missing(), says("x")), says("y")), "~~2:x", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := tt.f(0)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

// "Keys of two sources are never equal."
func TestUsersAndAddressesNeverCollide(t *testing.T) {
	f := keyfuncs.First(keyfuncs.Header("X-User-ID"), keyfuncs.RemoteIP)
	anonymous, err := f(get())
	check(t, anonymous, err, "~2:203.0.113.9", nil)
	for _, name := range []string{"203.0.113.9", "ip:203.0.113.9", "~2:203.0.113.9", "~~2:203.0.113.9", "~everyone", "2:203.0.113.9"} {
		if key, err := f(get("X-User-ID", name)); err != nil || key == anonymous || key == "~everyone" {
			t.Errorf("user %q has the key %q, %v", name, key, err)
		}
	}
	// An ambiguous user does not become an anonymous one.
	key, err := f(get("X-User-ID", "a", "X-User-ID", "b"))
	check(t, key, err, "", keyfuncs.ErrBadKey)
}

func TestJoin(t *testing.T) {
	other := errors.New("the database is down")
	join := func(keys ...string) func(int) (string, error) { return keyfuncs.Join(sourcesOf(keys...)...) }
	for _, tt := range []struct {
		name string
		f    func(int) (string, error)
		want string
		err  error
	}{
		{"parts_have_colons_between", join("alice", "203.0.113.9", "a"), "alice:203.0.113.9:a", nil},
		{"a_part_with_a_colon_is_bracketed", join("alice", "2001:db8:1:2::/64"), "alice:[2001:db8:1:2::/64]", nil},
		{"a_part_that_starts_with_a_bracket_is", join("[", "a"), "[[]:a", nil},
		{"other_brackets_stay", join("a[b]", "]"), "a[b]:]", nil},
		{"closing_brackets_in_brackets_are_doubled", join("a:]b]", "c"), "[a:]]b]]]:c", nil},
		{"one_part", join("a"), "a", nil},
		{"one_part_with_a_colon", join("a:b"), "[a:b]", nil},
		{"any_bytes", join("\x00\xff", "{}\r\n~"), "\x00\xff:{}\r\n~", nil},
		{"named_types_of_functions", keyfuncs.Join(says("a"), says("b")), "a:b", nil},
		{"long_parts", join(strings.Repeat("a", 200), strings.Repeat("b", 200)), strings.Repeat("a", 200) + ":" + strings.Repeat("b", 200), nil},
		{"an_empty_part_is_ErrNoKey", join("a", ""), "", keyfuncs.ErrNoKey},
		{"a_missing_part_is_ErrNoKey", keyfuncs.Join(says("a"), missing()), "", keyfuncs.ErrNoKey},
		{"a_bad_part_is_ErrBadKey", keyfuncs.Join(fails(keyfuncs.ErrBadKey), missing()), "", keyfuncs.ErrBadKey},
		{"any_part's_error_is_the_error", keyfuncs.Join(says("a"), fails(other)), "", other},
		{"a_key_with_an_error_is_the_error", keyfuncs.Join(says("a"), func(int) (string, error) { return "x", other }), "", other},
		{"of_a_first", keyfuncs.Join(keyfuncs.First(missing(), says("203.0.113.9")), plain(says("login"))), "[~2:203.0.113.9]:login", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := tt.f(0)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

// "Two joined keys are equal only if they have the same number of parts and all parts are equal."
// FuzzJoin reads the key back: if that can be done, no other parts have it.
func FuzzJoin(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("[a]", "]", "[", "a]:]")
	f.Add("a", "[b:c]", "a:[b", "c]")
	f.Add("\xff", "\x00", "~2:x", "x")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		keys := make(map[string][]string)
		for _, parts := range [][]string{{a, b}, {c, d}, {a}, {b, c}, {a, b, c}, {a, b, c, d}, {a + ":" + b, c}} {
			key, err := keyfuncs.Join(sourcesOf(parts...)...)(0)
			if slices.Contains(parts, "") {
				if key != "" || !errors.Is(err, keyfuncs.ErrNoKey) {
					t.Fatalf("%q: %q, %v", parts, key, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := keys[key]; ok && !slices.Equal(before, parts) {
				t.Fatalf("%q and %q are both %q", before, parts, key)
			}
			keys[key] = parts
			if back := split(t, key); !slices.Equal(back, parts) {
				t.Fatalf("%q: %q reads back as %q", parts, key, back)
			}
		}
	})
}

// split is Join the other way.
func split(t *testing.T, key string) (parts []string) {
	for {
		var part string
		if strings.HasPrefix(key, "[") {
			key = key[1:]
			for {
				before, after, ok := strings.Cut(key, "]")
				if !ok {
					t.Fatalf("no closing bracket in %q", key)
				}
				part += before
				if key = after; !strings.HasPrefix(key, "]") {
					break
				}
				part += "]"
				key = key[1:]
			}
		} else if i := strings.IndexByte(key, ':'); i >= 0 {
			part, key = key[:i], key[i:]
		} else {
			part, key = key, ""
		}
		parts = append(parts, part)
		if key == "" {
			return parts
		}
		if key[0] != ':' {
			t.Fatalf("%q after a part", key)
		}
		key = key[1:]
	}
}
