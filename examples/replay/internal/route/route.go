// Package route names the action of a request. The patterns are those of http.ServeMux, which checks them;
// the matching is done here, since a ServeMux wants an http.Request for each line.
package route

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxActions bounds the number of actions.
const maxActions = 1000

// The actions of requests that no route matches.
const (
	None       = -1
	Redirected = -2 // a ServeMux redirects the path, as //posts, and no handler runs
)

// All is the action of every request if there are no routes.
const All = "all"

// A Route gives the requests that match a pattern of [net/http.ServeMux] an action. The pattern has no
// host.
type Route struct {
	Pattern string // such as "POST /posts/{id}/replies"
	Action  string
}

// A pattern is a route, taken apart.
type pattern struct {
	method   string // "" is any
	segments []segment
	action   int
}

type segment struct {
	kind kind
	text []byte // of a literal
}

type kind uint8

// The kinds of segments, the more specific ones first.
const (
	literal kind = iota
	last         // {$}: nothing follows the slash
	one          // {id}
	rest         // {path...} or a slash at the end: whatever follows
)

// Routes find actions. They are for one goroutine. The more specific of two patterns that match stands first. Two of which
// none is more specific cannot both match: a ServeMux refuses such.
type Routes struct {
	patterns []pattern
	scratch  []byte
	slashed  []byte
}

// New takes the routes apart and names the actions, in the order of their first route.
func New(given []Route) (*Routes, []string, error) {
	if len(given) == 0 {
		return new(Routes), []string{All}, nil
	}
	mux := http.NewServeMux()
	var actions []string
	r := new(Routes)
	for _, route := range given {
		if route.Action == "" {
			return nil, nil, fmt.Errorf("route %q has no action; name one, such as reply", route.Pattern)
		}
		if err := register(mux, route.Pattern); err != nil {
			return nil, nil, err
		}
		i := slices.Index(actions, route.Action)
		if i < 0 {
			i = len(actions)
			actions = append(actions, route.Action)
		}
		p := parsePattern(route.Pattern)
		p.action = i
		r.patterns = append(r.patterns, p)
	}
	if len(actions) > maxActions {
		return nil, nil, fmt.Errorf("%d actions are more than %d; give several routes the same action", len(actions), maxActions)
	}
	slices.SortStableFunc(r.patterns, comparePatterns)
	return r, actions, nil
}

// register lets a ServeMux check the pattern, which panics if it is wrong or conflicts with
// another one.
func register(mux *http.ServeMux, text string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			why, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(p)), "\n")
			err = fmt.Errorf("route %q is not a pattern of http.ServeMux, such as POST /posts/{id}/replies: %s", text, why)
		}
	}()
	mux.Handle(text, http.NotFoundHandler())
	switch _, path, _ := cutMethod(text); {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("route %q names a host, which a log does not tell; leave it out", text)
	case strings.Contains(path, "/:") || strings.Contains(path, "/*"):
		return fmt.Errorf("route %q is of another router; write {id} for :id, and {path...} for *path", text)
	case strings.Contains(path, "//"):
		return fmt.Errorf("route %q has an empty segment, so no request reaches it; write one slash", text)
	}
	return nil
}

func cutMethod(text string) (method, path string, ok bool) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return "", text, false
	}
	return text[:i], strings.TrimLeft(text[i+1:], " \t"), true
}

func parsePattern(text string) pattern {
	method, path, _ := cutMethod(text)
	p := pattern{method: method}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch {
		case name == "{$}":
			p.segments = append(p.segments, segment{kind: last})
		case strings.HasSuffix(name, "...}"), name == "": // only at the end
			p.segments = append(p.segments, segment{kind: rest})
		case name[0] == '{':
			p.segments = append(p.segments, segment{kind: one})
		default:
			if plain, err := url.PathUnescape(name); err == nil {
				name = plain
			}
			p.segments = append(p.segments, segment{literal, []byte(name)})
		}
	}
	return p
}

// comparePatterns puts p before q if p matches a part of what q matches. It compares
// all segments, and their number, before the methods: else equality would not be transitive.
func comparePatterns(p, q pattern) int {
	kinds := func(a, b segment) int { return cmp.Compare(a.kind, b.kind) }
	return cmp.Or(slices.CompareFunc(p.segments, q.segments, kinds), cmp.Compare(breadth(p.method), breadth(q.method)))
}

func breadth(method string) int {
	switch method {
	case "":
		return 2
	case http.MethodGet: // HEAD too
		return 1
	}
	return 0
}

// Action is the number of a request's action, None or Redirected if no pattern matches.
func (r *Routes) Action(method, path []byte) int {
	if len(r.patterns) == 0 {
		return 0
	}
	switch {
	case len(path) == 0 || path[0] != '/' || !escaped(path):
		return None
	case !clean(path):
		return Redirected
	}
	switch p := r.find(method, path); {
	case (p == nil || p.open()) && r.redirected(method, path):
		return Redirected
	case p != nil:
		return p.action
	}
	return None
}

// Clone returns the same routes for another goroutine.
func (r *Routes) Clone() *Routes { return &Routes{patterns: r.patterns} }

func (r *Routes) find(method, path []byte) *pattern {
	for i := range r.patterns {
		if p := &r.patterns[i]; p.takes(method) && r.match(p, path[1:]) {
			return p
		}
	}
	return nil
}

// open is whether the pattern matches paths of any length.
func (p *pattern) open() bool { return p.segments[len(p.segments)-1].kind == rest }

// redirected is whether a ServeMux redirects the path, which no pattern or an open one matches, to the same
// with a slash at its end: a pattern for just that is the better one.
func (r *Routes) redirected(method, path []byte) bool {
	if path[len(path)-1] == '/' {
		return false
	}
	r.slashed = append(append(r.slashed[:0], path...), '/')
	p := r.find(method, r.slashed)
	return p != nil && (!p.open() || len(p.segments) == bytes.Count(r.slashed, []byte{'/'}))
}

func (p *pattern) takes(method []byte) bool {
	return p.method == "" || p.method == string(method) || p.method == http.MethodGet && string(method) == http.MethodHead
}

func (r *Routes) match(p *pattern, path []byte) bool {
	more := true // path has a segment left, maybe an empty one
	for i := range p.segments {
		if !more {
			return false
		}
		s := &p.segments[i]
		switch s.kind {
		case rest:
			return true
		case last:
			return len(path) == 0
		}
		var seg []byte
		seg, path, more = bytes.Cut(path, []byte{'/'})
		switch {
		case s.kind == one && len(seg) == 0, s.kind == literal && !r.same(seg, s.text):
			return false
		}
	}
	return !more
}

// same compares a path's segment, whose escapes are valid, with a literal.
func (r *Routes) same(seg, text []byte) bool {
	if bytes.IndexByte(seg, '%') < 0 {
		return bytes.Equal(seg, text)
	}
	r.scratch = r.scratch[:0]
	for i := 0; i < len(seg); i++ {
		c := seg[i]
		if c == '%' {
			c, i = unhex(seg[i+1])<<4|unhex(seg[i+2]), i+2
		}
		r.scratch = append(r.scratch, c)
	}
	return bytes.Equal(r.scratch, text)
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// escaped is whether all escapes are valid. If not, net/http answers 400.
func escaped(path []byte) bool {
	for {
		i := bytes.IndexByte(path, '%')
		if i < 0 {
			return true
		}
		if i+2 >= len(path) || unhex(path[i+1]) > 15 || unhex(path[i+2]) > 15 {
			return false
		}
		path = path[i+1:]
	}
}

// clean is whether a ServeMux takes the path as it is. If not, it redirects, and no route's handler runs.
func clean(path []byte) bool {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		switch next := path[i+1:]; {
		case len(next) == 0:
		case next[0] == '/':
			return false
		case next[0] == '.' && (len(next) == 1 || next[1] == '/' || next[1] == '.' && (len(next) == 2 || next[2] == '/')):
			return false
		}
	}
	return true
}
