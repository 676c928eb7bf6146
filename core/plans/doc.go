// Package plans reads the limits of a program from a document. Another document can replace it while the
// program runs:
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
//	p, err := plans.New(store, document)     // to start with, such as one that is embedded
//	err = p.Follow(plans.File("plans.json")) // and what replaces it
//	limit := nethttp.Config{Limiter: plans.Pick(p, user, action, customer)}.Limit(others, user, action)
//
// # The document
//
//	default  the plan of users who have no other
//	plans    the plans by name
//	users    the plans of single users, if there are any; to give one user other numbers, make a plan for it
//	zones    the time zones of single users, if there are any
//
// A plan has these fields:
//
//	limits   for each action one or several limits, as core.ParseLimit reads them; "*" stands for all actions
//	         that are not named. All limits of an action must agree before it passes
//	ban      a core.BanPolicy for all of these actions: refusals, within, bans, forgetAfter and perUser.
//	         With {} users are banned by hand only
//	zone     what {zone} in a limit stands for; UTC if it is left out
//
// CalendarWindow(100, month.from({day}), {zone}) is a month that begins on the day on which the customer has paid:
// Customer.Day. An action that a plan does not include has the limit Nothing(), which no ban follows. To switch an
// action off, put a document with Nothing() in force.
//
// A limit with Shadow is tried beside the others and refuses nobody. An action that a plan neither names nor
// covers with "*" is decided by the limiter in the code, others.
//
// The user and the action are those of the middleware. If action is keyfuncs.Route, it is a method and a
// route's template, or the pattern if that has no method.
//
// Which plan does a user have? That which "users" says, or else Customer.Plan, which customer returns, or
// else "default". So the program knows who has paid, and the document has the exceptions. The zone is found in
// the same way.
//
// A document in YAML or TOML is decoded, and encoded as JSON, before it is given to New. A byte order mark in front
// of a document is passed over.
//
// # Errors
//
// A broken document is never put in force. The error is a [*DocumentError] with everything that is wrong:
//
//	plans: line 5, column 20: plan "free", action "reply": SlidingWindow(0, 1m): max 0 is not within 1 to 10000
//	plans: line 9, column 5: plan "pro": "limit" is not a field; the fields are limits, ban, zone
//
// Unknown fields and names that are given twice are errors. A document has at most 64 MiB, a million users,
// 10,000 pairs of a plan and an action, and 16 limits for each pair. Reading stops after 100 errors, and where a
// document has too many users or pairs. Limits that the store cannot serve are errors too.
//
// # Changes
//
// [Plans.Generation] tells which document is in force, since when, and what it has changed. [Compare] tells that
// for a document before it is put in force:
//
//	proposed, err := plans.New(store, document)
//	for _, change := range plans.Compare(p, proposed) {
//		fmt.Println(change)
//	}
//	// plan free, reply: SlidingWindow(5, 1m) -> SlidingWindow(3, 1m)
//	// plan free, like: Funnel(15, Per(30, 1m)) -> Funnel(20, Per(30, 1m)); starts anew: Funnel(20, Per(30, 1m))
//
// Windows keep their counts. What starts anew gives each user its full quota once more: see package core,
// "Plans and changed numbers". The limiters of proposed count on the same store. So their Peek tells whether a
// user would be refused, and charges nothing. The program examples/quota shows that on a page. The program
// examples/replay tries a document on an access log.
//
// To go back, put the old document in force: Generation has its bytes.
//
// # Several replicas
//
// All replicas follow one source. A change is in force on all of them within two seconds, as long as
// requests come. With Redis as the source, write the document with SET:
//
//	err = p.Follow(func(ctx context.Context) ([]byte, error) { return rdb.Get(ctx, "plans").Bytes() })
//
// That is one GET a second for each replica. If it does not answer within half a second, another one is sent. If
// the source does not answer at all, the last document stays in force: one request waits for 50 ms, and after that
// none waits, until the source answers again. A program that starts then has the document given to New.
// Generation.Version is the same on all replicas that have the same document.
//
// # What it costs
//
// To pick a limiter takes two or three look-ups in maps and makes no allocation, also while a source is
// followed. Limiters are made when a document is put in force, and those of further time zones when they are
// first used.
//
// # Codes in the log
//
//	plans-changed     Another document is in force: its version, its number, and its first ten changes.
//	plans-rejected    A document has an error, which says where. Its version is logged, and in_force is that of
//	                  the one before, which stays in force. Correct it. Logged once for each document.
//	plans-not-loaded  The source does not answer, or its file is missing. The document in force stays.
//	                  Logged once until the source answers again.
//	plan-unknown      The program gave a user a plan that the document does not have, and the default plan
//	                  decides. Add the plan to the document. Logged once for each document.
package plans
