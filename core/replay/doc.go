// Package replay reads a log of requests and reports what limits would have done: how many
// requests and which users they would have refused, and how high a limit must be to refuse no user.
//
//	report, err := replay.Run(ctx, file, replay.Options{
//		Routes:     []replay.Route{{Pattern: "POST /posts/{id}/replies", Action: "reply"}},
//		Candidates: []replay.Candidate{{Limits: []core.Limit{core.SlidingWindow(5, time.Minute)}}},
//	})
//
// The library makes the decisions: each candidate is a [core.Limiter] on a memorystore whose
// clock is the log's. A user's actions follow the log even after a refusal.
// The command examples/replay prints the report as text, JSON or a page.
//
// # Formats
//
// A line is in Common or Combined Log Format, or it is a JSON object as nginx, Caddy, Envoy and log/slog
// write it. [Fields] names the fields of other JSON logs. The log may be compressed with gzip.
//
// If Options.Format is the text of an nginx log_format, lines are read by that. Variables are fields, so
// [Fields] and "field:NAME" name those that nginx does not define. A value ends where the text after its
// variable first occurs, and one in quotes at the next quote that has no backslash. Describe another
// server's format in the same way:
//
//	Format: `$remote_addr - - [$time_local] "$request" $status "$user_agent" uid=$uid`,
//	User:   "field:uid",
//
// A log in Combined Log Format with further fields at the end needs no format: "field:10" is the tenth, the
// one after the user agent. The time is one field, and so is a text in quotes.
//
// A request needs an instant, a method and a path. Other lines are counted as skipped, and so are blank
// lines and lines of 1 MiB or more.
//
// # Order and time
//
// Servers log a request when it ends. If the line has the duration, the action's instant is the
// start of the request. So lines may be out of order. If a request's instant is more than an hour before
// the newest instant above it, the request is late and left out. One line with an instant in the future
// can make all later lines late. If Late is high, look for such a line and remove it.
//
// Instants are read to the microsecond. Common Log Format has whole seconds: all requests of a second count
// as made in one instant, in the order of the log. So a limit that users reach within one second
// looks a little too strict.
//
// # The fit
//
// For each action the report has the smallest max of a SlidingWindow, for four periods, that would
// refuse no user, at most one user in a thousand, and at most one in a hundred. A max touches a user if
// some half-open window of the period holds more than max of the user's actions. The same is
// computed for the capacity of a Funnel at four rates. The numbers are exact: replaying
// the log with one touches no more users than that, and with one less it touches more.
//
// # Memory
//
// Memory does not grow with the length of the log. It is the sum of
//
//   - 16 bytes for each request of the last hour, since an earlier one may still come;
//   - for each user about 100 bytes and the name, and 96 bytes for each action of the user;
//   - about 40 bytes for each user id behind a user, but for the first;
//   - for each user and action with several requests within the last day about 220 bytes, and 1 to 5 for each
//     distinct instant of that day, for the fit of 24h: a request every second all day long takes 90 kB;
//   - the memorystore of each candidate, for users whose full quota is not available;
//   - about 50 bytes for each user that a candidate refused;
//   - about 20 MB for blocks of lines.
//
// The garbage collector can double that.
//
// # Speed
//
// Run uses all processors. On two, it reads 2,600,000 lines a second of a Combined log with 100,000
// users, and 1,200,000 with a SlidingWindow as the candidate. BenchmarkRun measures it.
package replay
