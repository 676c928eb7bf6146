package plans

// What a document says, compiled to limiters. All that is wrong is found at once.

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
	maxUsers    = 1_000_000 // in users, and in zones
	maxLimiters = 10_000    // pairs of a plan and an action
	maxLimits   = 16        // of a plan and an action
	maxName     = 64        // bytes of the name of a plan, or of a zone
)

const (
	anyOther = "*" // the action that stands for those without limits of their own

	// The parameters of a limit's text.
	zoneMark = "{zone}"
	dayMark  = "month.from({day})"
)

// fill puts a zone and a day of the month in the place of a text's parameters.
func fill(text, zone string, day int) string {
	text = strings.ReplaceAll(text, dayMark, string(core.Month.From(day)))
	return strings.ReplaceAll(text, zoneMark, zone)
}

// anotherDay is a day on which no limit of a document's plan begins its month: the default is the first.
const anotherDay = 31

// A generation is a compiled document. It does not change, except for the limiters of zones, which
// are made when they are first used.
type generation struct {
	document []byte
	version  string
	normal   *plan // of users who have no other
	plans    map[string]*plan
	users    map[string]*plan
	zones    map[string]string
	strange  notice.Once // a plan that is not in the document

	mu    sync.RWMutex // guards the fields below
	zoned map[zonedKey]*core.Limiter
	bad   map[string]time.Time // zones that could not be loaded, and until when that is believed
}

// A plan has the limits of some users, by action.
type plan struct {
	name    string
	zone    string // of a user who has no other
	ban     *core.BanPolicy
	limits  map[string]*limits
	isZoned bool
}

// A limits is what a plan says of an action.
type limits struct {
	texts   []string      // canonical, and with their parameters
	limits  []core.Limit  // in the plan's zone, with anotherDay in the place of {day}
	limiter *core.Limiter // in the plan's zone, with months from the first
	isZoned bool          // whether a text has the parameter {zone}
	isDayed bool          // whether a text has the parameter {day}
}

// of returns the plan's limits of an action, or nil.
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

// String joins the texts of the limits; nil has none.
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

// mostZoned bounds the limiters of zones and days, and mostBad the zones that could not be loaded.
// When a bound is reached, all of these are dropped. They are made or looked up again when they are
// used.
const (
	mostZoned = 10_000
	mostBad   = 1_000
	badFor    = time.Minute // the database may have been missing, or the process may have had too many open files
)

// in returns the limiter of a plan's limits for a time zone and for months that begin on a day. An
// empty zone means the plan's zone. Day 0 means the first.
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

// isBad remembers that a zone could not be loaded.
func (g *generation) isBad(zone string) {
	if len(zone) > maxName { // it was not looked up
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
	if err == nil && ban != nil && !slices.ContainsFunc(limits, isNothing) { // nobody is banned for what a plan does not include
		limiter, err = limiter.With(*ban)
	}
	return limiter, err
}

// isNothing reports whether a limit refuses every action.
func isNothing(l core.Limit) bool { return l.Quota() == 0 && !l.IsShadow() }

// legalZone reports whether a zone has the form of a name, and CalendarWindow accepts it. Without
// the first condition a zone could contain more words of a limit's text.
func legalZone(zone string) bool {
	if len(zone) > maxName || strings.ContainsAny(zone, "(),\"{} \t\r\n") {
		return false
	}
	_, err := core.ParseLimit("CalendarWindow(1, day, " + zone + ")")
	return err == nil
}

const badZone = `the zone %.64q is not one of the time zone database; use one such as UTC or Asia/Shanghai, and import _ "time/tzdata" if the machine may have no database`

// compile reads a document. Its error is a *DocumentError, or says what is wrong with the store.
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

// version is a digest of a document.
func version(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:6])
}

// always is a limit that every store can serve.
var always = core.Funnel(1, core.Every(time.Second))

type compiler struct {
	*reader
	*generation
	store    core.Store
	limiters int
	legal    map[string]bool // zones
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

// goTo goes to the value of a field, if there is one.
func (c *compiler) goTo(fields map[string]int, name string) bool {
	at, ok := fields[name]
	c.at = at
	return ok
}

// known reads the name of a plan of the document.
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

// planNames are the names of plans, for a problem. They are put in order only if it is kept: all users may have one.
type planNames map[string]*plan

func (p planNames) String() string {
	names := slices.Sorted(maps.Keys(p))
	for i := range names {
		names[i] = shown(names[i])
	}
	return strings.Join(names, ", ")
}

// readUsers reads what single users have. A problem does not name the user.
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

// zone reads a time zone. If it is not legal, zone returns "".
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

// plan reads a plan.
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

// limits reads the limits of an action. A ban policy that is not legal has its own problem already.
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
		case zoned: // the zone is the first that has a comma before it and a parenthesis behind it
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

// plain is an error of package core without what the document's error says already.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), core.ErrConfig.Error()+": ")
	return strings.TrimPrefix(strings.TrimPrefix(text, "core: "), "New: ")
}

// ban reads a ban policy, and reports whether it is legal.
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

// keep takes over from the last generation the limiters that have not changed, so that callers who
// wait for their turn stay in one queue.
func (g *generation) keep(before *generation) {
	kept := map[*limits]bool{}
	for name, p := range g.plans {
		was := before.plans[name]
		if was == nil || was.zone != p.zone || !reflect.DeepEqual(was.ban, p.ban) {
			continue
		}
		for action, l := range p.limits {
			if old := was.limits[action]; old != nil && slices.Equal(old.texts, l.texts) {
				p.limits[action], kept[old] = old, true
			}
		}
	}
	before.mu.RLock()
	defer before.mu.RUnlock()
	for key, limiter := range before.zoned {
		if kept[key.of] {
			g.zoned[key] = limiter
		}
	}
}
