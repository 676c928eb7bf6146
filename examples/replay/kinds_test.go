package main

// The logs that people have: one small log of each kind, with what comes of it.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The log has 42 requests by 12 clients within three minutes. Client 7 makes 9 of them in a minute.
type hit struct {
	at     time.Time
	client int
}

func hits(start time.Time) (all []hit) {
	for i := range 9 {
		all = append(all, hit{start.Add(time.Duration(3+6*i) * time.Second), 7})
	}
	for client := range 12 {
		for i := range 3 {
			if client+1 != 7 {
				all = append(all, hit{start.Add(time.Duration(1+2*client+60*i) * time.Second), client + 1})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b hit) int { return a.at.Compare(b.at) })
	return all
}

var march = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// write fills in a line for each hit.
func write(all []hit, line string) string {
	var log strings.Builder
	for i, h := range all {
		t := h.at
		log.WriteString(strings.NewReplacer(
			"{ip}", fmt.Sprintf("203.0.113.%d", h.client), "{net}", fmt.Sprintf("203.0.%d", h.client), "{net6}", fmt.Sprintf("2001:db8:%d::", h.client),
			"{ip6}", fmt.Sprintf("2001:db8:0:%d::%x", h.client, i+1),
			"{client}", fmt.Sprint(h.client),
			"{name}", fmt.Sprintf("client%d.isp.example", h.client),
			"{user}", fmt.Sprintf("user%d", h.client),
			"{port}", fmt.Sprint(50000+i),
			"{proxy}", []string{"10.0.0.7", "192.0.2.8"}[i%2],
			"{clf}", t.Format("02/Jan/2006:15:04:05 -0700"),
			"{clf0}", t.Format("02/Jan/2006:15:04:05"),
			"{iso}", t.Format("2006-01-02T15:04:05-07:00"),
			"{isoz}", t.Format("2006-01-02T15:04:05.000Z"),
			"{date}", t.Format("2006-01-02"), "{clock}", t.Format("15:04:05"),
			"{stamp}", t.Format(time.Stamp), "{ansic}", t.Format(time.ANSIC), "{slash}", t.Format("2006/01/02 15:04:05"),
			"{s}", fmt.Sprint(t.Unix()), "{ms}", fmt.Sprint(t.UnixMilli()), "{us}", fmt.Sprint(t.UnixMicro()), "{ns}", fmt.Sprint(t.UnixNano()),
			"{n}", fmt.Sprint(i+1), "{third}", []string{"-", "0.074", "0.074, 0.002"}[i%3], "{took}", []string{"0.4", "12.5", "812.5", "4000.1", "812"}[i%5],
		).Replace(line) + "\n")
	}
	return log.String()
}

const rest = ` - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612 "-" "curl/8"`

const jsonRest = `"method":"GET","path":"/posts/1","status":200}`

// What comes of a log: right is the right report. told is one with a hint that matches, lost one with exit 3, and
// refused no report. All but right also match the words.
const (
	right = iota
	told
	lost
	refused
)

var kinds = []struct {
	name   string
	args   []string
	line   string
	result int
	words  string
}{
	// Fields before the address.
	{"Common", nil, `{ip} - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"Combined", nil, `{ip}` + rest, right, ""},
	{"Combined, IPv6", nil, `{ip6}` + rest, right, ""},
	{"Combined, IPv6 in brackets with a port", nil, `[{ip6}]:{port}` + rest, right, ""},
	{"an address with a port", nil, `{ip}:{port}` + rest, right, ""},
	{"a host name", nil, `{name}` + rest, told, "no address"},
	{"a host name with a port", nil, `{name}:{port}` + rest, told, "no address"},
	{"an address whose end is 0", nil, `{net}.0` + rest, told, "Nearly all addresses are cut"},
	{"an address whose end is x", nil, `{net}.xxx` + rest, told, "Nearly all addresses are cut"},
	{"an address of IPv6 whose end is left out", nil, `{net6}` + rest, told, "Nearly all addresses are cut"},
	{"no authuser", nil, `{ip} - [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"nothing but the address", nil, `{ip} [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"the time first", nil, `[{clf}] {ip} "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"a user with spaces", nil, `{ip} - user 7 of [x] [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"two members", nil, `{ip}, {proxy}` + rest, told, "list of several"},
	{"two members without a space", nil, `{ip},{proxy}` + rest, told, "list of several"},
	{"three members", nil, `{ip}, 10.1.1.1, {proxy}` + rest, told, "list of several"},
	{"three members in IPv6", nil, `{ip6}, 2001:db8:ffff::1, {proxy}` + rest, told, "list of several"},
	{"a private member first", nil, `192.168.1.5, {ip}, {proxy}` + rest, told, "list of several"},
	{"an unknown member first", nil, `unknown, {ip}` + rest, told, "list of several"},
	{"a list in quotes", nil, `"{ip}, {proxy}"` + rest, told, "list of several"},
	{"a list second", nil, `{proxy} {ip}, 10.1.1.1` + rest, told, "the second"},
	{"an address second", nil, `{proxy} {ip}` + rest, told, "the second"},
	{"a list behind a dash", nil, `{proxy} - {ip}, 10.1.1.1 [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, told, "the second"},
	{"a list at the end", nil, `{proxy}` + rest + ` "{ip}, {proxy}"`, told, "X-Forwarded-For"},
	{"an address at the end", nil, `{proxy}` + rest + ` "{ip}"`, told, "X-Forwarded-For"},
	{"no list at the end", nil, `{ip}` + rest + ` "-"`, right, ""},
	{"a list in a log_format", []string{"-format", `$http_x_forwarded_for - - [$time_local] "$request" $status $rest`}, `{ip}, {proxy}` + rest, told, "list of several"},
	{"a list before a space in a log_format", []string{"-format", `$http_x_forwarded_for $remote_addr [$time_local] "$request" $rest`}, `{ip}, 10.1.1.1 {proxy} [{clf}] "GET / HTTP/1.1" 200`, told, "X-Forwarded-For"},
	{"a virtual host", nil, `www.example.org {ip}` + rest, right, ""},
	{"a virtual host with a port", nil, `www.example.org:443 {ip}` + rest, right, ""},
	{"a virtual host as an address", nil, `192.0.2.10 {ip}` + rest, told, "the second"},
	{"a virtual host as an address with a port", nil, `192.0.2.10:443 {ip}` + rest, told, "the second"},
	{"a virtual host in IPv6", nil, `[2001:db8:ffff::1]:443 {ip6}` + rest, told, "the second"},
	{"a virtual host behind a dash", nil, `www.example.org - {ip} - [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"a virtual host as authuser", nil, `{ip} - www.example.org [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"a virtual host behind the time", nil, `{ip} - - [{clf}] www.example.org "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"a virtual host in quotes", nil, `{ip} - - [{clf}] "www.example.org" "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"a virtual host before a host name", nil, `www.example.org {name}` + rest, told, "no address"},
	{"ingress-nginx", nil, `{ip} - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612 "-" "curl/8" 85 0.003 [default-web-80] [] 10.1.2.3:80 612 0.003 200 5d2c`, right, ""},
	{"ingress-nginx, older", nil, `{ip} - [{ip}] - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612 "-" "curl/8" 85 0.003 [default-web-80] 10.1.2.3:80 612 0.003 200 5d2c`, told, "several addresses"},
	{"ingress-nginx behind a proxy", nil, `{proxy} - [{ip}, {proxy}] - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612`, told, "the second"},

	{"a header Forwarded", nil, `{"time":"{iso}","remote_addr":"{proxy}","xff":"for={ip};proto=https",` + jsonRest, told, "X-Forwarded-For"},
	{"a list before an address", nil, `{ip}, 10.1.1.1 {proxy}` + rest, told, "list of several"},
	{"no first address", nil, `- {ip}, 10.1.1.1` + rest, told, "list of several"},
	{"an epoch in brackets", nil, `{ip} - - [{s}.125] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},

	// Prefixes.
	{"syslog", nil, `{stamp} web1 nginx: {ip}` + rest, right, ""},
	{"syslog with a process", nil, `{stamp} web1 nginx[812]: {ip}` + rest, right, ""},
	{"syslog with an address", nil, `{stamp} 192.0.2.13 nginx: {ip}` + rest, right, ""},
	{"syslog with a priority", nil, `<190>{stamp} web1 nginx: {ip}` + rest, right, ""},
	{"syslog and a host name", nil, `{stamp} web1 nginx: {name}` + rest, told, "no address"},
	{"syslog with an ISO time", nil, `{iso} web1 nginx: {ip}` + rest, right, ""},
	{"syslog, RFC 5424", nil, `<190>1 {isoz} 192.0.2.13 nginx 812 - - {ip}` + rest, right, ""},
	{"syslog, RFC 5424 with data", nil, `<190>1 {isoz} web1 nginx 812 ID47 [x@1 a="b\] c"] {ip}` + rest, right, ""},
	{"syslog and a list", nil, `{stamp} web1 nginx: {ip}, {proxy}` + rest, told, "list of several"},
	{"syslog and JSON", nil, `{stamp} web1 app[12]: {"time":"{isoz}","ip":"{ip}",` + jsonRest, right, ""},
	{"journalctl -o short-full", nil, `Mon {date} {clock} UTC web1 nginx[812]: {ip}` + rest, right, ""},
	{"journalctl -o short-monotonic", nil, `[ 1234.567890] web1 nginx[812]: {ip}` + rest, right, ""},
	{"journalctl -o json", nil, `{"__REALTIME_TIMESTAMP":"{us}","MESSAGE":"{ip} - - [{clf}] \"GET /posts/1 HTTP/1.1\" 200 612","_PID":"812"}`, right, ""},
	{"CRI", nil, `{isoz} stdout F {ip}` + rest, right, ""},
	{"CRI in parts", nil, `{isoz} stdout P {ip} - - [{clf}] "GET /posts` + "\n" + `{isoz} stdout F /1 HTTP/1.1" 200 612`, right, ""},
	{"CRI in parts of two streams", nil, `{isoz} stdout P {ip} - - [{clf}] "GET /posts` + "\n" + `{isoz} stderr F [error] x` + "\n" + `{isoz} stdout F /1 HTTP/1.1" 200 612`, right, ""},
	{"CRI and JSON", nil, `{isoz} stdout F {"time":"{isoz}","ip":"{ip}",` + jsonRest, right, ""},
	{"CRI and JSON without a time", nil, `{isoz} stdout F {"ip":"{ip}",` + jsonRest, right, ""},
	{"kubectl logs --timestamps", nil, `{isoz} {ip}` + rest, right, ""},
	{"kubectl logs --prefix", nil, `[pod/web-7d9f/nginx] {ip}` + rest, right, ""},
	{"stern", nil, `web-7d9f nginx {ip}` + rest, right, ""},
	{"stern and JSON", nil, `web-7d9f app {"time":"{isoz}","ip":"{ip}",` + jsonRest, right, ""},
	{"docker json-file", nil, `{"log":"{ip} - - [{clf}] \"GET /posts/1 HTTP/1.1\" 200 612\n","stream":"stdout","time":"{isoz}"}`, right, ""},
	{"docker json-file around JSON", nil, `{"log":"{\"time\":\"{isoz}\",\"ip\":\"{ip}\",\"method\":\"GET\",\"path\":\"/posts/1\"}\n","stream":"stdout","time":"{isoz}"}`, right, ""},
	{"docker json-file around a list", nil, `{"log":"{ip}, {proxy} - - [{clf}] \"GET /posts/1 HTTP/1.1\" 200 612\n","stream":"stdout","time":"{isoz}"}`, told, "list of several"},
	{"docker compose", nil, `web-1  | {ip}` + rest, right, ""},
	{"docker compose in colours", nil, "\x1b[36mweb-1  | \x1b[0m{ip6}" + rest, right, ""},
	{"and in a text of JSON", nil, `{"log":"\u001b[36mweb-1  | \u001b[1;32m{ip6} - - [{clf}] \"GET /posts/1 HTTP/1.1\" 200 612\u001b[0m\n","stream":"stdout","time":"{isoz}"}`, right, ""},
	{"a logger's colours", nil, "\x1b[90m{isoz}\x1b[0m \x1b[32mINF\x1b[0m \x1b[36mmethod=\x1b[0mGET \x1b[36mpath=\x1b[0m/posts/1 \x1b[36mremote_ip=\x1b[0m{ip}", right, ""},
	{"docker compose and JSON", nil, `web-1  | {"time":"{isoz}","ip":"{ip}",` + jsonRest, right, ""},
	{"fluentd", nil, `{date} {clock} +0000 nginx.access: {"remote":"{ip}",` + jsonRest, right, ""},
	{"Heroku", nil, `{iso} heroku[router]: at=info method=GET path="/posts/1" host=h fwd="{ip}" dyno=web.1 connect=0ms service=12ms status=200`, right, ""},
	{"grep -n in a file without an extension", nil, `/var/log/httpd/access_log:{n}:{ip6}` + rest, told, "number in front"},
	{"grep -n", nil, `{n}:{ip}` + rest, told, "number in front"},
	{"grep -n, IPv6", nil, `{n}:{ip6}` + rest, told, "number in front"},
	{"grep", nil, `access.log:{ip}` + rest, right, ""},
	{"grep, IPv6", nil, `/var/log/access.log:{ip6}` + rest, right, ""},
	{"grep -nH", nil, `access.log:{n}:{ip}` + rest, told, "number in front"},
	{"grep -nH, IPv6", nil, `access.log:{n}:{ip6}` + rest, told, "number in front"},
	{"cat -n", nil, "     {n}\t{ip}" + rest, told, "number in front"},
	{"grep -n in JSON", nil, `{n}:{"time":"{isoz}","ip":"{ip}",` + jsonRest, told, "number in front"},

	// Units.
	{"nginx JSON", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1 HTTP/1.1","status":200,"request_time":0.074}`, right, ""},
	{"zerolog", nil, `{"level":"info","ip":"{ip}:{port}","method":"GET","url":"/posts/1","duration":{took},"time":"{iso}"}`, told, "-unit"},
	{"zerolog with its unit", []string{"-unit", "ms"}, `{"level":"info","ip":"{ip}:{port}","method":"GET","url":"/posts/1","duration":{took},"time":"{iso}"}`, right, ""},
	{"zerolog with a wrong unit", []string{"-unit", "s"}, `{"level":"info","ip":"{ip}:{port}","method":"GET","url":"/posts/1","duration":812.5,"time":"{iso}"}`, told, "begun before the log"},
	{"log/slog", nil, `{"time":"{isoz}","level":"INFO","msg":"request","remote_addr":"{ip}:{port}","duration":812500000,` + jsonRest, told, "-unit"},
	{"log/slog with its unit", []string{"-unit", "ns"}, `{"time":"{isoz}","level":"INFO","msg":"request","remote_addr":"{ip}:{port}","duration":812500000,` + jsonRest, right, ""},
	{"log/slog as text", nil, `time={isoz} level=INFO msg=request method=GET path=/posts/1 remote_addr={ip}:{port} duration=812.5ms`, right, ""},
	{"zap", nil, `{"level":"info","ts":{s}.125,"caller":"a.go:1","msg":"request","ip":"{ip}","latency":0.8,` + jsonRest, told, "-unit"},
	{"zap's console", nil, "{isoz}\tINFO\ta.go:1\trequest\t" + `{"ip":"{ip}","latency":"0.8ms",` + jsonRest, right, ""},
	{"Caddy", nil, `{"level":"info","ts":{s}.125,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"{ip}","remote_port":"1","method":"GET","uri":"/posts/1","headers":{"Accept":["*/*"]}},"duration":0.812,"status":200}`, right, ""},
	{"Caddy in ms", nil, `{"level":"info","ts":{s}.125,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":812,"status":200}`, told, "-unit"},
	{"Caddy with words", nil, `{"level":"info","ts":"{isoz}","request":{"remote_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":"812ms"}`, right, ""},
	{"Caddy by the wall clock", nil, `{"level":"info","ts":"{slash}","request":{"remote_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":0.8}`, told, "-zone"},
	{"Envoy JSON", nil, `{"start_time":"{isoz}","duration":812,"path":"/posts/1","method":"GET","downstream_remote_address":"{ip}:{port}"}`, right, ""},
	{"Traefik JSON", nil, `{"ClientAddr":"{ip}:{port}","ClientHost":"{ip}","Duration":812500000,"RequestMethod":"GET","RequestPath":"/posts/1","StartUTC":"{isoz}","level":"info","msg":"","time":"{iso}"}`, right, ""},
	{"Traefik JSON without a start", nil, `{"ClientHost":"{ip}","Duration":812500000,"RequestMethod":"GET","RequestPath":"/posts/1","time":"{iso}"}`, right, ""},
	{"seconds", nil, `{"ts":{s},"ip":"{ip}",` + jsonRest, right, ""},
	{"milliseconds", nil, `{"ts":{ms},"ip":"{ip}",` + jsonRest, right, ""},
	{"microseconds", nil, `{"ts":"{us}","ip":"{ip}",` + jsonRest, right, ""},
	{"nanoseconds", nil, `{"ts":{ns},"ip":"{ip}",` + jsonRest, right, ""},
	{"a start and a duration", []string{"-field", "time=started_at"}, `{"started_at":"{isoz}","duration":812,"ip":"{ip}",` + jsonRest, right, ""},

	// Names.
	{"Caddy, older", nil, `{"ts":{s}.125,"request":{"remote_addr":"{ip}:{port}","method":"GET","uri":"/posts/1"},"duration":0.8}`, right, ""},
	{"Caddy behind a proxy", nil, `{"ts":{s}.125,"request":{"remote_ip":"{proxy}","client_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":0.8}`, right, ""},
	{"Caddy and a header", nil, `{"ts":{s}.125,"request":{"remote_ip":"{proxy}","method":"GET","uri":"/posts/1","headers":{"X-Forwarded-For":["{ip}"]}},"duration":0.8}`, told, "X-Forwarded-For"},
	{"Caddy and its errors", nil, `{"ts":{s}.125,"logger":"http.log.access","request":{"remote_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":0.8}` + "\n" + `{"ts":{s}.125,"logger":"http.log.error","msg":"EOF","request":{"remote_ip":"{ip}","method":"GET","uri":"/posts/1"},"duration":0.8}`, right, ""},
	{"messages between requests", nil, `{"time":"{isoz}","ip":"{ip}",` + jsonRest + "\n" + `{"time":"{isoz}","level":"ERROR","msg":"it failed"}`, right, ""},
	{"nginx' errors between requests", nil, `{ip}` + rest + "\n" + `{slash} [error] 12#12: *1 open() failed, client: {ip}, server: _, request: "GET /posts/1 HTTP/1.1"`, right, ""},
	{"uri beside request", []string{"-route", "GET /posts/{id}=read"}, `{"time":"{iso}","remote_addr":"{ip}","request_method":"GET","uri":"/index.php","request":"GET /posts/1 HTTP/1.1"}`, right, ""},
	{"an empty address beside another", nil, `{"time":"{iso}","remote_addr":"","client_ip":"{ip}",` + jsonRest, right, ""},
	{"an empty address beside a list", nil, `{"time":"{iso}","remote_addr":"-","http_x_forwarded_for":"{ip}, {proxy}",` + jsonRest, told, "list of several"},
	{"a proxy beside a list", nil, `{"time":"{iso}","remote_addr":"{proxy}","http_x_forwarded_for":"{ip}",` + jsonRest, told, "X-Forwarded-For"},
	{"Google's load balancer", nil, `{"httpRequest":{"requestMethod":"GET","requestUrl":"https://h/posts/1","remoteIp":"{ip}","latency":"0.012s"},"timestamp":"{isoz}"}`, right, ""},
	{"ECS", nil, `{"@timestamp":"{isoz}","http":{"request":{"method":"GET"}},"url":{"path":"/posts/1"},"source":{"ip":"{ip}"},"event":{"duration":812500000}}`, right, ""},
	{"Kong", nil, `{"request":{"method":"GET","uri":"/posts/1"},"client_ip":"{ip}","started_at":{ms},"latencies":{"request":12}}`, right, ""},
	{"pino", nil, `{"level":30,"time":{ms},"req":{"method":"GET","url":"/posts/1","remoteAddress":"{ip}"},"msg":"request completed"}`, right, ""},
	{"Amazon's API Gateway", nil, `{"requestId":"x","ip":"{ip}","requestTime":"{clf}","httpMethod":"GET","path":"/posts/1","status":"200"}`, right, ""},
	{"Azure's Application Gateway", nil, `{"time":"{isoz}","resourceId":"/X","category":"ApplicationGatewayAccessLog","operationName":"ApplicationGatewayAccess","properties":{"instanceId":"a_0","clientIP":"{ip}","clientPort":{port},"httpMethod":"GET","requestUri":"/posts/1","requestQuery":"x=1","userAgent":"curl/8","httpStatus":200,"timeTaken":0.4,"originalHost":"www.example.org"}}`, right, ""},
	{"Azure's Application Gateway, by timeStamp", nil, `{"timeStamp":"{iso}","resourceId":"/X","properties":{"clientIP":"{ip}","clientPort":"{port}","httpMethod":"GET","requestUri":"/posts/1","timeTaken":"0.4"}}`, right, ""},
	{"Azure's Front Door", nil, `{"time":"{isoz}","category":"FrontDoorAccessLog","properties":{"trackingReference":"x","httpMethod":"GET","requestUri":"https://www.example.org:443/posts/1?x=1","userAgent":"curl/8","clientIp":"{ip}","clientPort":"{port}","socketIp":"{ip}","timeTaken":"0.046","httpStatusCode":"200"}}`, right, ""},
	{"Azure's App Service", nil, `{"time":"{isoz}","category":"AppServiceHTTPLogs","properties":{"CsMethod":"GET","CsUriStem":"/posts/1","CsUriQuery":"x=1","CIp":"{ip}","CsUsername":"","TimeTaken":12,"ScStatus":200}}`, right, ""},
	{"Azure's App Service, as text", nil, `{"time":"{isoz}","category":"AppServiceHTTPLogs","properties":"{\"CsMethod\":\"GET\",\"CsUriStem\":\"/posts/1\",\"CIp\":\"{ip}\",\"TimeTaken\":\"12\",\"ScStatus\":200}"}`, right, ""},
	{"Azure's API Management", nil, `{"time":"{isoz}","category":"GatewayLogs","callerIpAddress":"{ip}","properties":{"method":"GET","url":"https://api.example.org/posts/1?x=1","backendTime":10,"responseCode":200}}`, right, ""},
	{"Azure's storage", []string{"-field", "method=operationName", "-field", "path=uri"}, `{"time":"{isoz}","category":"StorageRead","operationName":"GetBlob","callerIpAddress":"{ip}:{port}","uri":"https://x.blob.example.org/posts/1","durationMs":3}`, right, ""},
	{"Cloudflare", nil, `{"ClientIP":"{ip}","ClientRequestMethod":"GET","ClientRequestURI":"/posts/1","EdgeStartTimestamp":{ns}}`, right, ""},
	{"an object over several lines", nil, "{\n" + `  "time": "{iso}"` + "\n}", refused, "jq -c"},
	{"unknown names", nil, `{"when":"{isoz}","who":"{ip}","what":"GET","where":"/posts/1"}`, refused, "-field method=NAME"},
	{"an unknown time", nil, `{"when":"{isoz}","ip":"{ip}",` + jsonRest, refused, "-field time=NAME"},
	{"an unknown address", nil, `{"time":"{isoz}","who":"{ip}",` + jsonRest, refused, "-user field:NAME"},

	// Values that nobody asked for.
	{"a dash for a number", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1 HTTP/1.1","upstream_time": {third},"agent":"x"}`, right, ""},
	{"numbers that are none", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1 HTTP/1.1","a":NaN,"b":,"c":0x1f,"d":00.5}`, right, ""},
	{"escapes that are none", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1?q=\x22a\x22 HTTP/1.1","agent":"\x22\q"}`, right, ""},
	{"a tab in a text", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1 HTTP/1.1","agent":"a` + "\t" + `b"}`, right, ""},
	{"a file that is one array", nil, `{"time":"{iso}","remote_addr":"{ip}","request":"GET /posts/1 HTTP/1.1"},`, right, ""},
	{"a space in the URL", nil, `{ip} - - [{clf}] "GET /posts/1?q=a b c HTTP/1.1" 200 612`, right, ""},
	{"no status", nil, `{ip} - - [{clf}] "GET /posts/1 HTTP/1.1" - -`, right, ""},
	{"no version", nil, `{ip} - - [{clf}] "GET /posts/1" 200 612`, right, ""},
	{"a whole URL", nil, `{ip} - - [{clf}] "GET http://h:80/posts/1?x HTTP/1.1" 200 612`, right, ""},
	{"bytes that are no request", nil, `{ip}` + rest + "\n" + `{ip} - - [{clf}] "\x16\x03\x01" 400 157` + "\n" + `{ip} - - [{clf}] "-" 408 -`, right, ""},
	{"HTTP/2 to a server of HTTP/1", nil, `{ip}` + rest + "\n" + `{ip} - - [{clf}] "PRI * HTTP/2.0" 400 157`, right, ""},
	{"one field more than the format", []string{"-format", `$remote_addr $status [$time_local] "$request"`}, `{ip} 200 0.5 [{clf}] "GET /posts/1 HTTP/1.1"`, refused, "holds a space"},

	// Times.
	{"no zone", nil, `{"time":"{date} {clock}","ip":"{ip}",` + jsonRest, told, "-zone"},
	{"no zone, which is named", []string{"-zone", "UTC"}, `{"time":"{date}T{clock}","ip":"{ip}",` + jsonRest, right, ""},
	{"a date and a time", []string{"-zone", "UTC"}, `{"date":"{date}","time":"{clock}","ip":"{ip}",` + jsonRest, right, ""},
	{"a date and a time in a log_format", []string{"-format", `$date $time $remote_addr "$request"`, "-zone", "UTC"}, `{date} {clock} {ip} "GET / HTTP/1.1"`, right, ""},
	{"ANSI C", []string{"-zone", "UTC"}, `{"time":"{ansic}","ip":"{ip}",` + jsonRest, right, ""},
	{"ISO in Combined", nil, `{ip} - - [{iso}] "GET /posts/1 HTTP/1.1" 200 612`, right, ""},
	{"Python", []string{"-zone", "UTC"}, `{ip} - - [02/Mar/2026 {clock}] "GET /posts/1 HTTP/1.1" 200 -`, right, ""},
	{"no time", nil, `INFO:     {ip}:{port} - "GET /posts/1 HTTP/1.1" 200 OK`, refused, "Line 1 is .*-format"},

	// Formats beyond.
	{"Traefik", nil, `{ip} - - [{clf}] "GET /posts/1 HTTP/1.1" 200 612 "-" "curl/8" 1 "web@docker" "http://10.0.0.5:80" 3ms`, right, ""},
	{"AWS ALB", nil, `h2 {isoz} app/my-lb/50dc6c {ip}:{port} 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET https://h:443/posts/1 HTTP/2.0" "curl/8" ECDHE TLSv1.2 arn:aws:x "Root=1-5" "h" "arn" 0 {isoz} "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`, right, ""},
	{"AWS ELB", nil, `{isoz} my-lb {ip}:{port} 10.0.0.1:80 0.000073 0.001 0.000 200 200 0 29 "GET http://h:80/posts/1 HTTP/1.1" "curl/8" - -`, right, ""},
	{"CloudFront", nil, `{date}	{clock}	FRA2	612	{ip}	GET	d1.cloudfront.net	/posts/1	200	-	curl/8	a=b	-	Hit	id==	h	https	23	0.001	-`, right, ""},
	{"IIS", nil, `{date} {clock} 10.0.0.5 GET /posts/1 a=b 443 - {ip} curl/8 - 200 0 0 812`, right, ""},
	{"HAProxy", []string{"-zone", "UTC"}, `{stamp} lb haproxy[12]: {ip}:{port} [{clf0}.123] http-in~ app/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {h|} "GET /posts/1 HTTP/1.1"`, right, ""},
	{"HAProxy and IPv6", []string{"-zone", "UTC"}, `{ip6}:{port} [{clf0}.123] web~ app/a 0/0/1/2/3 200 512 - - ---- 1/1/0/0/0 0/0 "GET /posts/1 HTTP/1.1"`, right, ""},
	{"HAProxy and IPv6 in full", []string{"-zone", "UTC"}, `2001:db8:0:{client}:1:2:3:4:{port} [{clf0}.123] web~ app/a 0/0/1/2/3 200 512 - - ---- 1/1/0/0/0 0/0 "GET /posts/1 HTTP/1.1"`, right, ""},
	{"and with a short port", []string{"-zone", "UTC"}, `lb haproxy[12]: 2001:db8:0:{client}:1:2:3:4:8080 [{clf0}.123] web~ app/a 0/0/1/2/3 200 512 - - ---- 1/1/0/0/0 0/0 "GET /posts/1 HTTP/1.1"`, right, ""},
	{"HAProxy without a zone", nil, `{ip}:{port} [{clf0}.123] http-in app/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /posts/1 HTTP/1.1"`, told, "-zone"},
	{"Envoy", nil, `[{isoz}] "GET /posts/1 HTTP/1.1" 200 - 0 5 12 11 "{ip}, {proxy}" "curl/8" "id" "h" "10.0.0.5:80"`, told, "list of several"},
	{"Istio", nil, `[{isoz}] "GET /posts/1 HTTP/1.1" 200 - via_upstream - "-" 0 5 12 11 "-" "curl/8" "id" "h" "10.0.0.5:80" inbound|80|| 127.0.0.6:1 10.0.0.5:80 {ip}:{port} outbound default`, right, ""},
	{"AWS ALB by name", []string{"-format", "alb"}, `http {isoz} app/my-lb/50dc6c {ip}:{port} 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://h:80/posts/1 HTTP/1.1" "curl/8" - -`, right, ""},
	{"HAProxy by name", []string{"-format", "haproxy", "-zone", "UTC"}, `{ip}:{port} [{clf0}.123] http-in app/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /posts/1 HTTP/1.1"`, right, ""},

	// Users that are none.
	{"two proxies and nobody else", nil, `{proxy}` + rest, told, "from 2 addresses"},
	{"many proxies and nobody else", nil, `10.0.0.{client}` + rest, told, "private networks"},
	{"an id for each request", []string{"-user", "field:id"}, `{"time":"{isoz}","id":"r{n}",` + jsonRest, told, "Nearly each request"},
	{"users of whom most have no name", []string{"-user", "authuser"}, `{ip} - {user} [{clf}] "GET / HTTP/1.1" 200 1` + "\n" + `{ip}` + rest + "\n" + `{ip}` + rest, right, ""},
}

// headers are lines in front of some logs.
var headers = map[string]string{
	"CloudFront":               "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for\n",
	"IIS":                      "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n",
	"a file that is one array": "[\n",
}

// facts are what -json says of the first action.
type facts struct {
	Users, Requests, Late, Long int
	Lost                        int
	Fit                         []struct {
		Period string
		Max    struct{ Nobody int }
	}
}

var client = regexp.MustCompile(`(?m)^    (?:most refused| {12})  (.*) \(\d+(?:;.*)?\)$`)

// A user looks like a user: as the client that the log names.
var looks = regexp.MustCompile(`^(203\.0\.113\.\d+|203\.0\.\d+\.(0|xxx)|2001:db8:[1-9a-f][0-9a-f]*::/64|2001:db8:0:\d+::/64|client\d+\.isp\.example|user\d+)$`)

func TestKindsOfLogs(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			log := headers[kind.name] + write(hits(march), kind.line)
			outcome(t, log, kind.args, kind.result, kind.words, func(f facts, names []string) {
				if kind.result == told && regexp.MustCompile("from 2 addresses|private networks|Nearly each|begun before").MatchString(kind.words) {
					return // nobody can tell who acts
				}
				if f.Users != 12 || f.Requests != 42 || f.Fit[0].Max.Nobody != 9 || f.Lost != 0 && kind.name != "a file that is one array" {
					t.Errorf("%d requests by %d users, at most %d a minute, %d lost; want 42, 12, 9 and 0", f.Requests, f.Users, f.Fit[0].Max.Nobody, f.Lost)
				}
				for _, name := range names {
					if !looks.MatchString(name) {
						t.Errorf("%q does not look like a user", name)
					}
				}
			})
		})
	}
}

// outcome runs the command on a log, and checks what comes of it.
func outcome(t *testing.T, log string, args []string, result int, words string, check func(facts, []string)) {
	t.Helper()
	var f facts
	code, stdout, stderr := replayed(t, log, append(slices.Clone(args), "-json", "-")...)
	if result != refused {
		if err := json.Unmarshal([]byte(stdout), &f); err != nil {
			t.Fatalf("%v, exit %d, %s", err, code, stderr)
		}
	}
	_, text, errs := replayed(t, log, append(slices.Clone(args), "-show-users", "-limit", "SlidingWindow(1, 24h)", "-")...)
	if want := map[int]int{right: exitOK, told: exitOK, lost: exitLost, refused: exitError}[result]; code != want {
		t.Errorf("exit %d, want %d; %s", code, want, stderr)
	}
	said := text + errs
	if !regexp.MustCompile(words).MatchString(said) {
		t.Errorf("no word of %q:\n%s", words, said)
	}
	if hint := regexp.MustCompile(`(?m)^(Lines have|All clients|The (client|duration|times|log goes|lines)|All requests|Nearly|Health checks|Each line|\d+ requests would).*`).FindString(text); result == right && hint != "" {
		t.Errorf("a needless hint: %s", hint)
	}
	if result == refused {
		return
	}
	var names []string
	for _, m := range client.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	check(f, names)
}
