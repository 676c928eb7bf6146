package line

// The formats of a log.

import "strings"

// FormatAuto reads each line by itself, in any of the other formats.
const FormatAuto = "auto"

// A format is a way to write requests, and what makes its parser.
type format struct {
	name   string
	parser func(*Options, *addresses) (parser, error)
}

// A parser reads the lines of a format. Unknown means that a line has another one.
type parser interface {
	parse(line []byte, r *Request) Outcome
}

// formats are all of them, in the order in which FormatAuto tries them.
var formats = []format{
	{"combined", newCombined}, // Common or Combined Log Format, and what resembles it
	{"json", newJSONLines},    // a JSON object on each line
	// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html
	{"alb", logFormatOf(`$type $time_iso8601 $elb $remote_addr $target $t1 $t2 $t3 $status $target_status $received $sent "$request" $rest`)},
	// https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html
	{"elb", logFormatOf(`$time_iso8601 $elb $remote_addr $backend $t1 $t2 $t3 $status $backend_status $received $sent "$request" $rest`)},
	// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
	{"envoy", logFormatOf(`[$start_time] "$request" $status $flags $received $sent $duration $upstream_time "$x_forwarded_for" "$agent" "$id" "$authority" "$upstream"`)},
	// https://istio.io/latest/docs/tasks/observability/logs/access-log/
	{"istio", logFormatOf(`[$start_time] "$request" $status $flags $details $termination "$failure" $received $sent $duration $upstream_time "$x_forwarded_for" "$agent" "$id" "$authority" "$upstream" $cluster $upstream_local $local $downstream_remote_address $rest`)},
	// https://docs.haproxy.org/3.2/configuration.html#8.2.3
	{"haproxy", logFormatOf(`$remote_addr [$start_time] $frontend $backend $timers $status $bytes $rest"$request"`)},
	{"w3c", newW3C},       // fields that a line #Fields: names, as IIS and CloudFront write them
	{"logfmt", newLogfmt}, // key=value pairs
}

// Formats are the names of all formats. The text of an nginx log_format is one too.
func Formats() []string {
	names := []string{FormatAuto}
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// formats are those that the options allow.
func (o *Options) formats() (some []format) {
	if strings.Contains(o.Format, "$") {
		return []format{{o.Format, logFormatOf(o.Format)}}
	}
	for _, f := range formats {
		if o.Format == FormatAuto || o.Format == f.name {
			some = append(some, f)
		}
	}
	return some
}
