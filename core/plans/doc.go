// Package plans reads the limits of a program from a document. The document can be replaced while
// the program runs. It looks like this:
//
//	{
//	  "default": "free",
//	  "plans": {
//	    "free": {
//	      "limits": {
//	        "GET /v1/report": ["CalendarWindow(100, month, {zone}).PerUser()", "Funnel(10, Per(2, 1s))"],
//	        "*":              ["SlidingWindow(60, 1m)"]
//	      },
//	      "ban": {"refusals": 20, "within": "1m", "bans": ["1m", "1h"]},
//	      "zone": "Asia/Shanghai"
//	    },
//	    "pro": {"limits": {"*": ["SlidingWindow(600, 1m)"]}}
//	  },
//	  "users": {"alice": "pro"},
//	  "zones": {"bob": "America/New_York"}
//	}
//
// The middleware picks a limiter by the plan of a request's user and by the action:
//
//	p, err := plans.New(store, document)     // the first document, such as an embedded one
//	err = p.Follow(plans.File("plans.json")) // the documents that replace it
//
//	// others decides the actions for which a user's plan has no limits.
//	others := core.Must(core.New(store, core.SlidingWindow(60, time.Minute)))
//
//	// customer says what the program knows about the user, such as the plan of a subscription.
//	customer := func(r *http.Request) (plans.Customer, error) {
//		return plans.Customer{Plan: sessionOf(r).Plan}, nil
//	}
//	limit := nethttp.Config{Limiter: plans.Pick(p, user, action, customer)}.Limit(others, user, action)
//
// # I want to
//
//   - write a document: "The document"
//   - say which plan a user has: see "Which plan a user has"
//   - put another document in force, on all replicas: [Plans.Follow]; see "Several replicas"
//   - know what a document would change: [Compare]; see "Changes"
//   - try a document on an access log: the program examples/replay
//   - have a month begin on the day of payment, or limits in the customer's time zone: {day} and
//     {zone} in "The document"
//   - show customers their plan: the program examples/quota
//
// # The document
//
//	default  the plan of users who have no other
//	plans    the plans by name
//	users    the plans of single users; to give one user other numbers, make a plan for that user
//	zones    the time zones of single users
//
// The fields users and zones may be left out. A plan has these fields:
//
//	limits   for each action one or several limits, as core.ParseLimit reads them; "*" stands for all
//	         actions that are not named. An action passes if all of its limits have room, apart
//	         from shadow limits
//	ban      a core.BanPolicy for all of these actions: refusals, within, bans, forgetAfter and
//	         perUser. With {} users are banned by hand only
//	zone     the time zone that replaces {zone} for users who have no other zone; UTC if it is left
//	         out
//
// CalendarWindow(100, month.from({day}), {zone}) is a month that begins on the day on which the
// customer has paid: Customer.Day.
//
// If a plan does not include an action, give the action the limit Nothing(). Its refusals do not
// lead to a ban. To switch an action off, put a document with Nothing() in force. A limit with
// Shadow is checked together with the other limits, but refuses nobody.
//
// If a plan neither names an action nor covers it with "*", the limiter in the code, others,
// decides.
//
// The user and the action are those of the middleware. If action is keyfuncs.Route, the action is
// the method and the template of a route, such as "GET /v1/report". If the pattern of a ServeMux
// has no method, the action is the pattern.
//
// If your document is in YAML or TOML, decode it, encode it as JSON, and pass that to New. A byte
// order mark in front of a document is ignored.
//
// # Which plan a user has
//
// A user has the first of these plans that the document has:
//   - the plan in the document's field users
//   - Customer.Plan, which the function customer returns
//   - the document's default
//
// So the program knows who has paid, and the document has the exceptions. A user's time zone is the
// first of these that is given: the zone in the document's field zones, Customer.Zone, and the
// plan's zone.
//
// # Errors
//
// A document with an error is not put in force. The error is a [*DocumentError], which lists up to
// 100 problems:
//
//	plans: line 5, column 20: plan "free", action "reply": SlidingWindow(0, 1m): max 0 is not within 1 to 10000
//	plans: line 9, column 5: plan "pro": "limit" is not a field; the fields are limits, ban, zone
//
// Unknown fields, names that are given twice, and limits that the store cannot serve are errors. A
// document has at most 64 MiB, a million users, 10,000 pairs of a plan and an action, and 16 limits
// for each pair. Reading stops after 100 errors, or when a document has too many users or pairs. If
// a document is not valid JSON, only the first error of its JSON is listed.
//
// # Changes
//
// [Plans.Generation] says which document is in force, since when, and what it has changed.
// [Compare] says what a document would change before it is put in force:
//
//	proposed, err := plans.New(store, document)
//	for _, change := range plans.Compare(p, proposed) {
//		fmt.Println(change)
//	}
//	// plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(3, 1m)
//	// plan free, like: Funnel(15, Per(30, 1m)) -> Funnel(20, Per(30, 1m)); starts anew: Funnel(20, Per(30, 1m))
//
// If only the quota of a window changes, the window keeps its counts. A limit that starts anew gives
// each user its full quota once more: see package core, "Plans and changed numbers".
//
// In the example above, the limiters of the variable proposed use the same store as the limiters of
// p. So their Peek says whether a user would be refused, and charges nothing. The program
// examples/quota shows that on a page.
//
// To go back, put the old document in force. Generation has its bytes.
//
// # Several replicas
//
// All replicas follow one source. A change is in force on a replica within two seconds, as long as
// requests come and the source answers. With Redis as the source, write the document with SET:
//
//	err = p.Follow(func(ctx context.Context) ([]byte, error) { return rdb.Get(ctx, "plans").Bytes() })
//
// Each replica with requests sends one GET a second. If Redis does not answer within half a second,
// the replica sends another GET. If the source does not answer at all, the last document stays in
// force. The first request that asks the source waits for 50 ms. Later requests do not wait at all,
// until the source has answered again. A program that starts while the source does not answer uses
// the document given to New.
//
// Generation.Version is the same on all replicas that have the same document.
//
// # What it costs
//
// To pick a limiter takes a few look-ups in maps and usually makes no allocation. If a source is
// followed, one request a second calls the source, and this request allocates. The limiters are
// made when a document is put in force. Limiters for users with another time zone or day are made
// when they are first used.
//
// # Codes in the log
//
//	plans-changed     Another document is in force. The line has its version, its number, and its
//	                  first ten changes.
//	plans-rejected    A document has an error, which says where. Correct it. The line has the
//	                  document's version. The field in_force is the version of the document that
//	                  stays in force. Logged for each call of Update, and once for each document
//	                  of a source.
//	plans-not-loaded  The source does not answer, or its file is missing. The document in force
//	                  stays. Logged once until the source answers again.
//	plan-unknown      The program gave a user a plan that the document does not have, and the default
//	                  plan decides. Add the plan to the document. Logged once for each document.
package plans
