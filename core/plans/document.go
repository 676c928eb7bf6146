package plans

// A document compiled to limiters. compile reports several errors of a document at once.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
)

// The bounds of a document.
const (
	maxDocument = 64 << 20  // bytes
	maxUsers    = 1_000_000 // in the field users, and in the field zones
	maxLimiters = 10_000    // pairs of a plan and an action
	maxLimits   = 16        // for each such pair
	maxName     = 64        // bytes of the name of a plan, or of a zone
)

const (
	anyOther = "*" // stands for all actions that the plan does not name

	// Parameters in the text of a limit. fill replaces them.
	zoneMark = "{zone}"
	dayMark  = "month.from({day})"
)

// fill replaces the parameters of a limit's text by a zone and a day of the month.
func fill(text, zone string, day int) string {
	text = strings.ReplaceAll(text, dayMark, string(core.Month.From(day)))
	return strings.ReplaceAll(text, zoneMark, zone)
}

// anotherDay replaces {day} when a document is read. It is not 1, so that a limit with {day} never
// has the identity of a limit whose months begin on the first day.
const anotherDay = 31

// A generation is a compiled document. It is immutable, except that limiters for further zones and
// days are added when they are first used.
type generation struct {
	document []byte
	version  string
	normal   *plan // the default plan
	plans    map[string]*plan
	users    map[string]*plan
	zones    map[string]string
	strange  notice.Once // the warning about a plan that is not in the document

	mu    sync.RWMutex // guards the fields below
	zoned map[zonedKey]*core.Limiter
	bad   map[string]time.Time // zones that could not be loaded, and when to try them again
}

// A plan is a compiled plan of the document. limits has its limits by action.
type plan struct {
	name    string
	zone    string // for users without a zone
	ban     *core.BanPolicy
	limits  map[string]*limits
	isZoned bool
}

// A limits is a compiled list of limits, for one plan and action.
type limits struct {
	texts   []string      // in the form of core.Limit.String, but with the parameters
	limits  []core.Limit  // with the plan's zone and anotherDay
	limiter *core.Limiter // with the plan's zone and the day 1
	isZoned bool          // a text has the parameter {zone}
	isDayed bool          // a text has the parameter {day}
}

// of returns the plan's limits for an action. If the plan does not name the action, of returns the
// limits of "*". If there is no "*" either, it returns nil.
func (p *plan) of(action string) *limits {
	if p == nil {
		return nil
	}
	if l := p.limits[action]; l != nil {
		return l
	}
	return p.limits[anyOther]
}

func (p *plan) actions() map[string]*limits {
	if p == nil {
		return nil
	}
	return p.limits
}

func (p *plan) called() string {
	if p == nil {
		return ""
	}
	return p.name
}

// String joins the texts of the limits with " and ". It returns "" if l is nil.
func (l *limits) String() string {
	if l == nil {
		return ""
	}
	return strings.Join(l.texts, " and ")
}

type zonedKey struct {
	of   *limits
	zone string
	day  int
}

// mostZoned is the most limiters that are kept for zones and days. mostBad is the most zones that
// are remembered as not loadable. If one of these maps is full, it is emptied, and an entry is made
// again when it is needed.
const (
	mostZoned = 10_000
	mostBad   = 1_000
	badFor    = time.Minute // a failure may be temporary, such as too many open files
)

// in returns the limiter of l for a time zone and a day of the month. An empty zone means the
// plan's zone. The day 0 means 1.
func (g *generation) in(store core.Store, p *plan, l *limits, zone string, day int) (*core.Limiter, error) {
	if !l.isZoned || zone == "" {
		zone = p.zone
	}
	if !l.isDayed || day == 0 {
		day = 1
	}
	if zone == p.zone && day == 1 {
		return l.limiter, nil
	}
	if day < 1 || day > 31 {
		return nil, fmt.Errorf("plans: the day %d of a Customer is not within 1 to 31", day)
	}
	key := zonedKey{l, zone, day}
	g.mu.RLock()
	limiter, bad := g.zoned[key], g.bad[zone]
	g.mu.RUnlock()
	if limiter != nil {
		return limiter, nil
	}
	known := time.Now().Before(bad)
	if known || !legalZone(zone) {
		if !known {
			g.isBad(zone)
		}
		return nil, fmt.Errorf("plans: "+badZone, zone)
	}
	limits, err := l.parse(zone, day)
	if err == nil {
		limiter, err = newLimiter(store, limits, p.ban)
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if made := g.zoned[key]; made != nil {
		return made, nil
	}
	if len(g.zoned) >= mostZoned {
		clear(g.zoned)
	}
	g.zoned[key] = limiter
	return limiter, nil
}

// isBad remembers for badFor that a zone could not be loaded.
func (g *generation) isBad(zone string) {
	if len(zone) > maxName { // legalZone has not looked it up
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.bad) >= mostBad || g.bad == nil {
		g.bad = map[string]time.Time{}
	}
	g.bad[zone] = time.Now().Add(badFor)
}

func (l *limits) parse(zone string, day int) ([]core.Limit, error) {
	parsed := make([]core.Limit, len(l.texts))
	for i, text := range l.texts {
		var err error
		if parsed[i], err = core.ParseLimit(fill(text, zone, day)); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

func newLimiter(store core.Store, limits []core.Limit, ban *core.BanPolicy) (*core.Limiter, error) {
	limiter, err := core.New(store, limits...)
	if err == nil && ban != nil && !slices.ContainsFunc(limits, isNothing) { // the plan does not include the action, so its refusals ban nobody
		limiter, err = limiter.With(*ban)
	}
	return limiter, err
}

// isNothing reports whether a limit refuses every action.
func isNothing(l core.Limit) bool { return l.Quota() == 0 && !l.IsShadow() }

// legalZone reports whether CalendarWindow accepts a zone. The first condition refuses long zones,
// and zones that would change the rest of a limit's text, such as "UTC).PerUser(".
func legalZone(zone string) bool {
	if len(zone) > maxName || strings.ContainsAny(zone, "(),\"{} \t\r\n") {
		return false
	}
	_, err := core.ParseLimit("CalendarWindow(1, day, " + zone + ")")
	return err == nil
}

const badZone = `the zone %.64q is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`

// compile compiles a document. If the document is wrong, the error is a *DocumentError. Any other
// error says what is wrong with the store.
func compile(store core.Store, document []byte) (*generation, error) {
	if _, err := core.New(store, always); err != nil {
		return nil, err
	}
	r := newReader(document)
	if err := r.err(); err != nil {
		return nil, err
	}
	g := &generation{document: document, version: version(document), zoned: map[zonedKey]*core.Limiter{}}
	c := compiler{reader: r, generation: g, store: store, legal: map[string]bool{}}
	r.read(c.compile)
	return g, r.err()
}

// version returns a digest of a document.
func version(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:6])
}

// always is a limit that every store of this module accepts.
var always = core.Funnel(1, core.Every(time.Second))

type compiler struct {
	*reader
	*generation
	store    core.Store
	limiters int
	legal    map[string]bool // zones that are known to be legal
}

func (c *compiler) compile() {
	fields := c.fields("the document", "default", "plans", "users", "zones")
	if c.plans = map[string]*plan{}; c.goTo(fields, "plans") {
		c.entries("plans", c.plan)
	}
	if len(c.plans) == 0 {
		c.problem(fields["plans"], `the document has no plans; give it at least {"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(60, 1m)"]}}}}`)
	}
	if c.goTo(fields, "default") {
		c.normal = c.known(`"default"`)
	} else {
		c.problem(0, `the document needs "default", the plan of users who have no other`)
	}
	if c.goTo(fields, "users") {
		c.users = readUsers(c, "users", c.known)
	}
	if c.goTo(fields, "zones") {
		c.zones = readUsers(c, "zones", c.zone)
	}
}

// goTo moves the reader to the value of a field, and reports whether the field exists.
func (c *compiler) goTo(fields map[string]int, name string) bool {
	at, ok := fields[name]
	c.at = at
	return ok
}

// known reads the name of a plan, and returns that plan. If the document has no such plan, known
// adds a problem and returns nil.
func (c *compiler) known(what string) *plan {
	c.next()
	at := c.at
	name := c.string(what)
	p := c.plans[name]
	if name != "" && p == nil && len(c.plans) > 0 {
		c.problem(at, "%s: there is no plan %.40q; the plans are %.400s", what, name, planNames(c.plans))
	}
	return p
}

// planNames formats the names of plans for a problem, sorted.
type planNames map[string]*plan

func (p planNames) String() string {
	names := slices.Sorted(maps.Keys(p))
	for i := range names {
		names[i] = shown(names[i])
	}
	return strings.Join(names, ", ")
}

// readUsers reads an object whose names are users. read reads the value of a user. No problem names
// a user.
func readUsers[T any](c *compiler, field string, read func(what string) T) map[string]T {
	users := map[string]T{}
	c.entries(field, func(user string, at int) {
		_, twice := users[user]
		switch {
		case twice:
			c.problem(at, "%s: a user is given twice; remove one", field)
		case user == "":
			c.problem(at, "%s: a user is empty", field)
		case len(users) == maxUsers:
			c.problem(at, "%s has more than %d users", field, maxUsers)
			c.stop()
		default:
			users[user] = read(field)
			return
		}
		c.raw()
	})
	return users
}

// zone reads a time zone. If the zone is not legal, zone adds a problem and returns "".
func (c *compiler) zone(what string) string {
	c.next()
	at := c.at
	zone := c.string(what)
	if zone == "" || c.legal[zone] {
		return zone
	}
	if !legalZone(zone) {
		c.problem(at, "%s: "+badZone, what, zone)
		return ""
	}
	c.legal[zone] = true
	return zone
}

// plan reads a plan, and adds it to c.plans.
func (c *compiler) plan(name string, at int) {
	what := fmt.Sprintf("plan %.64q", name)
	switch {
	case name == "" || len(name) > maxName:
		c.problem(at, "%s: a name has 1 to %d bytes", what, maxName)
	case c.plans[name] != nil:
		c.problem(at, "%s is given twice; remove one", what)
	}
	fields := c.fields(what, "limits", "ban", "zone")
	end := c.at
	p := &plan{name: name, zone: "UTC", limits: map[string]*limits{}}
	c.plans[name] = p
	if c.goTo(fields, "zone") {
		p.zone = cmp.Or(c.zone(what), p.zone)
	}
	legal := true
	if c.goTo(fields, "ban") {
		p.ban, legal = c.ban(what)
	}
	if c.goTo(fields, "limits") {
		c.entries(what+`, "limits"`, func(action string, at int) {
			what := fmt.Sprintf("%s, action %.80q", what, action)
			switch {
			case action == "":
				c.problem(at, "%s: the action is empty", what)
			case p.limits[action] != nil:
				c.problem(at, "%s is given twice; remove one", what)
			}
			if c.limiters++; c.limiters == maxLimiters+1 {
				c.problem(at, "the document has limits for more than %d pairs of a plan and an action", maxLimiters)
				c.stop()
			}
			p.limits[action] = c.limits(what, p, legal)
		})
	}
	if len(p.limits) == 0 {
		c.problem(at, `%s has no limits; give it some for "*", which stands for all actions`, what)
	}
	if _, given := fields["zone"]; given && !p.isZoned {
		c.problem(fields["zone"], "%s has a zone, but no limit uses it; write CalendarWindow(100, month, %s), or remove the zone", what, zoneMark)
	}
	c.at = end
}

// limits reads the limits of a plan for an action. If the plan's ban policy is not legal, the
// argument legal is false, and limits makes no limiter. The ban policy has added its own problem
// then.
func (c *compiler) limits(what string, p *plan, legal bool) *limits {
	l := &limits{}
	c.next()
	begin, problems := c.at, len(c.problems)
	c.list(what, func() {
		c.next()
		at := c.at
		if len(l.limits) > maxLimits {
			c.raw()
			return
		}
		text := c.string(what)
		zoned := strings.Contains(text, zoneMark)
		p.isZoned, l.isZoned = p.isZoned || zoned, l.isZoned || zoned
		dayed := strings.Contains(text, dayMark)
		l.isDayed = l.isDayed || dayed
		limit, err := core.ParseLimit(fill(text, p.zone, anotherDay))
		switch {
		case text == "":
			return
		case err != nil:
			c.problem(at, "%s: %s", what, plain(err))
			return
		case zoned && limit.Name() != "" && strings.Contains(text[strings.IndexByte(text, '"'):], zoneMark):
			c.problem(at, "%s: %s stands for the zone of a CalendarWindow; it cannot be in a name", what, zoneMark)
			return
		case zoned: // the zone is the last argument, so it stands between a comma and a parenthesis
			text = strings.Replace(limit.String(), ", "+p.zone+")", ", "+zoneMark+")", 1)
			if !strings.Contains(text, zoneMark) {
				c.problem(at, "%s: %s stands for the whole zone of a CalendarWindow; write CalendarWindow(100, month, %[2]s)", what, zoneMark)
				return
			}
		default:
			text = limit.String()
		}
		if dayed {
			text = strings.Replace(text, string(core.Month.From(anotherDay)), dayMark, 1)
		}
		l.texts, l.limits = append(l.texts, text), append(l.limits, limit)
	})
	switch wrong := len(c.problems) > problems; {
	case wrong || !legal:
	case len(l.limits) == 0:
		c.problem(begin, "%s has no limits; give it some, or leave the action out", what)
	case len(l.limits) > maxLimits:
		c.problem(begin, "%s has more than %d limits", what, maxLimits)
	default:
		limits, err := l.parse(p.zone, 1)
		if err == nil {
			l.limiter, err = newLimiter(c.store, limits, p.ban)
		}
		if err != nil {
			c.problem(begin, "%s: %s", what, plain(err))
		}
	}
	return l
}

// plain returns the text of an error of package core without the prefixes
// "core: bad configuration: ", "core: " and "New: ".
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), core.ErrConfig.Error()+": ")
	return strings.TrimPrefix(strings.TrimPrefix(text, "core: "), "New: ")
}

// ban reads a ban policy, and reports whether the policy is legal.
func (c *compiler) ban(what string) (b *core.BanPolicy, legal bool) {
	what += `, "ban"`
	b = &core.BanPolicy{}
	begin, problems := c.at, len(c.problems)
	fields := c.fields(what, "refusals", "within", "bans", "forgetAfter", "perUser")
	if c.goTo(fields, "refusals") {
		b.Refusals = value[int](c.reader, what+`, "refusals"`, "a whole number")
	}
	if c.goTo(fields, "within") {
		b.Within = c.duration(what + `, "within"`)
	}
	if c.goTo(fields, "bans") {
		c.list(what+`, "bans"`, func() { b.Bans = append(b.Bans, c.duration(what+`, "bans"`)) })
	}
	if c.goTo(fields, "forgetAfter") {
		b.ForgetAfter = c.duration(what + `, "forgetAfter"`)
	}
	if c.goTo(fields, "perUser") {
		b.PerUser = value[bool](c.reader, what+`, "perUser"`, "true or false")
	}
	if len(c.problems) == problems {
		if _, err := newLimiter(c.store, []core.Limit{always}, b); err != nil {
			c.problem(begin, "%s: %s", what, plain(err))
		}
	}
	return b, len(c.problems) == problems
}

// reuse takes unchanged limiters from the previous generation, so that callers that wait stay in one
// queue.
func (g *generation) reuse(before *generation) {
	reused := map[*limits]bool{}
	for name, p := range g.plans {
		was := before.plans[name]
		if was == nil || was.zone != p.zone || !reflect.DeepEqual(was.ban, p.ban) {
			continue
		}
		for action, l := range p.limits {
			if old := was.limits[action]; old != nil && slices.Equal(old.texts, l.texts) {
				p.limits[action], reused[old] = old, true
			}
		}
	}
	before.mu.RLock()
	defer before.mu.RUnlock()
	for key, limiter := range before.zoned {
		if reused[key.of] {
			g.zoned[key] = limiter
		}
	}
}
