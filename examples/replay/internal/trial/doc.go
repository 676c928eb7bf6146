// Package trial replays a log of requests, and tries limits on it.
//
// The library makes the decisions: each candidate is a [core.Limiter] on a memorystore whose
// clock is the log's. A user's actions follow the log even after a refusal.
//
// # Order and time
//
// Servers log a request when it ends. If the line has the duration, the action's instant is the
// start of the request. Lines may be out of order by an hour. If the instant in a line is more than an hour before
// the newest one above it, the request is late and left out. A request that began so early is long, and left
// out too. One line with an instant in the future can make all later lines late.
//
// Instants are read to the microsecond. Common Log Format has whole seconds: all requests of a second count
// as made in one instant, in the order of the log. So a limit that users reach within one second
// looks a little too strict.
//
// # Memory
//
// Memory does not grow with the length of the log. It is the sum of
//
//   - 16 bytes for each request of the last hour, since an earlier one may still come;
//   - for each user about 100 bytes and the name, of which a digest stands for a long one, and 104 bytes for each action of the user;
//   - about 40 bytes for each user id behind a user, but for the first;
//   - for each user and action with several requests within the last day about 220 bytes, and 1 to 5 for each
//     distinct instant of that day, for the fit of 24h: a request every second all day long takes 90 kB;
//   - the memorystore of each candidate, for users whose full quota is not available;
//   - about 50 bytes for each user that a candidate refused;
//   - about 30 MB for blocks of lines, and 1 MB for each of several files.
//
// The garbage collector can double that.
//
// # Speed
//
// Run uses all processors. On two, it reads 2,600,000 lines a second of a Combined log with 100,000
// users, and 1,200,000 with a SlidingWindow as the candidate. BenchmarkRun measures it.
package trial
