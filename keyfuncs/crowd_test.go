package keyfuncs_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// some makes requests of a peer, with lines of X-Forwarded-For if header makes them.
func some(n int, peer func(i int) string, header func(i int) string) (requests []*http.Request) {
	for i := range n {
		r := from(peer(i), "")
		if header != nil {
			r.Header[xff] = strings.Split(header(i), "\n")
		}
		requests = append(requests, r)
	}
	return requests
}

func byProxy(i int) string { return fmt.Sprint("10.0.0.1:", 1024+i%60_000) }

// A proxy that is not trusted, and appends its own address behind the client's, makes all its clients one.
func TestOneClientIsAProxy(t *testing.T) {
	const balancer = "198.51.100.10"
	proxied := func(n int, header func(i int) string) []*http.Request { return some(n, byProxy, header) }
	behind := func(i int) string { return fmt.Sprintf("192.0.2.%d, %s", i%250+1, balancer) }
	alone := proxied(1000, func(i int) string { return fmt.Sprintf("192.0.2.%d", i%250+1) })
	mixed := func(one, other []*http.Request) (mixed []*http.Request) {
		for i := range one {
			mixed = append(mixed, one[i], other[i])
		}
		return mixed
	}
	random := rand.New(rand.NewPCG(1, 2))
	invented := func(int) string {
		n := random.Uint32()
		return fmt.Sprintf("%d.%d.%d.%d, 192.0.2.9", n>>24|1, n>>16&255, n>>8&255, n&255)
	}
	for _, tt := range []struct {
		name     string
		requests []*http.Request
		want     string
	}{
		{"a_thousand_clients_that_are_one_are_logged_once", proxied(5000, behind), "one-client"},
		{"in_two_lines_too", proxied(1000, func(i int) string { return strings.Replace(behind(i), ", ", "\n", 1) }), "one-client"},
		{"with_ports_too", proxied(1000, func(i int) string { return fmt.Sprintf("192.0.2.%d:%d, %s:443, 10.0.0.2", i%250+1, i+1, balancer) }), "one-client"},
		{"of_IPv6_too", proxied(1000, func(i int) string { return fmt.Sprintf("2001:db8:%x::1, %s", i, balancer) }), "one-client"},
		{"what_clients_forge_does_not_matter", proxied(1000, func(i int) string { return "6.6.6.6, " + behind(i) }), "one-client"},
		{"among_clients_of_proxies_that_are_trusted", mixed(alone, proxied(1000, behind)), "one-client"},
		{"also_after_many_of_them", append(slices.Repeat(alone, 10), proxied(10_000, behind)...), "one-client"},
		{"as_a_peer", some(1000, func(i int) string { return fmt.Sprint(balancer, ":", 1024+i) }, func(i int) string { return fmt.Sprintf("192.0.2.%d", i%250+1) }), "forwarded-untrusted one-client trusted-never-matches"},

		{"a_few_addresses_do_not_matter", proxied(5000, func(i int) string { return behind(i % 39) }), ""},
		{"a_balancer_that_is_trusted_is_well", proxied(5000, func(i int) string { return fmt.Sprintf("192.0.2.%d, 10.0.0.2", i%250+1) }), ""},
		{"one_client_is_well", proxied(5000, func(int) string { return "192.0.2.9" }), ""},
		{"one_client_that_forges_an_address_is_well", proxied(5000, func(int) string { return "6.6.6.6, 192.0.2.9" }), ""},
		{"one_that_forges_many_is_well", proxied(20_000, invented), ""},
		{"one_that_sometimes_forges_is_well", mixed(proxied(5000, func(int) string { return balancer }), proxied(5000, behind)), ""},
		{"each_client_that_forges_another_is_well", proxied(5000, func(i int) string { return fmt.Sprintf("6.6.%d.%d, 192.0.%d.%d", i/250, i%250, i/250, i%250) }), ""},
		{"an_office_is_well", proxied(5000, func(i int) string { return fmt.Sprintf("192.168.0.%d, 192.0.2.9", i%250+1) }), ""},
		{"an_office_with_names_is_well", proxied(5000, func(i int) string { return fmt.Sprintf("desk%d, 192.0.2.9", i) }), ""},
		{"a_health_check_without_the_header_does_not_matter", slices.Concat(many(10, from("10.0.0.1:1", "")), proxied(1000, behind)), "one-client"},
		{"nor_does_a_stranger", slices.Concat(many(10, from("203.0.113.9:1", "")), proxied(1000, behind)), "one-client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trusted := prefixes("10.0.0.0/8")
			for _, f := range []keyfuncs.Func{
				keyfuncs.Func(keyfuncs.ForwardedIP(trusted...)),
				keyfuncs.Func(keyfuncs.Subnet{IPv4: 24}.Of(keyfuncs.ForwardedAddr(trusted...))),
			} {
				lines := logged(t, f, tt.requests...)
				if got := codes(lines); got != tt.want {
					t.Errorf("said %q, want %q", got, tt.want)
				}
				if i := strings.Index(tt.want, "one-client"); i >= 0 && !strings.Contains(strings.Join(lines, "\n"), "client="+balancer) {
					t.Errorf("%q does not name it", lines)
				}
			}
		})
	}
	t.Run("in_Forwarded_too", func(t *testing.T) {
		requests := proxied(1000, nil)
		for i, r := range requests {
			r.Header[fwd] = []string{fmt.Sprintf(`for="192.0.2.%d:80";proto=https, for=%s`, i%250+1, balancer)}
		}
		if got := codes(logged(t, keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...), requests...)); got != "one-client" {
			t.Errorf("said %q", got)
		}
	})
}

// A container host or a node of a cluster hides the clients behind its private address, and no header has theirs.
func TestOnePrivateAddress(t *testing.T) {
	remote := func() keyfuncs.Func { return keyfuncs.RemoteIP }
	perIP := func() keyfuncs.Func { return keyfuncs.Func(keyfuncs.ClientIP("nethttp.PerIP")) }
	forwarded := func() keyfuncs.Func { return keyfuncs.Func(keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...)) }
	edge := func() keyfuncs.Func {
		return keyfuncs.Func(keyfuncs.TrustedHeaderIP("X-Real-IP", prefixes("10.0.0.0/8")...))
	}
	at := func(host string, ports int) func(int) string {
		return func(i int) string { return fmt.Sprintf("%s:%d", host, 1024+i%ports) }
	}
	peers := func(hosts, ports int) func(int) string {
		return func(i int) string { return fmt.Sprintf("172.17.0.%d:%d", i%hosts+1, 1024+i%ports) }
	}
	const said = "one-private-address"
	for _, tt := range []struct {
		name     string
		f        func() keyfuncs.Func
		requests []*http.Request
		want     string
	}{
		{"a_container_host,_said_once", remote, some(3000, at("172.17.0.1", 1000), nil), said},
		{"of_IPv6", remote, some(1000, at("[fd00::1]", 1000), nil), said},
		{"a_node_in_shared_address_space", remote, some(1000, at("100.64.0.1", 1000), nil), said},
		{"with_one_connection_too", remote, some(1000, at("172.17.0.1", 1), nil), said},
		{"three_nodes", remote, some(1000, peers(3, 1000), nil), said},
		{"PerIP", perIP, some(1000, at("172.17.0.1", 1000), nil), said},
		{"checks_of_the_host_itself_do_not_matter", remote, append(some(100, at("127.0.0.1", 100), nil), some(1000, at("172.17.0.1", 1000), nil)...), said},
		{"a_node_in_front_of_the_proxy", forwarded, some(1000, byProxy, func(int) string { return "172.17.0.1" }), said},
		{"one_that_is_trusted_too", forwarded, some(1000, byProxy, func(int) string { return "10.0.0.9" }), said},
		{"a_proxy_that_sets_no_header", forwarded, some(1000, byProxy, nil), said},
		{"or_another_header_than_the_one_that_is_read", edge, some(1000, byProxy, func(int) string { return "192.0.2.1" }), said},

		{"a_few_requests_do_not_matter", remote, some(499, at("172.17.0.1", 1000), nil), ""},
		{"an_intranet_is_well", remote, some(5000, peers(250, 1000), nil), ""},
		{"four_callers_are_well", remote, some(5000, peers(4, 1000), nil), ""},
		{"two_callers_that_keep_their_connections_are_well", remote, some(5000, peers(2, 20), nil), ""},
		{"a_public_client_among_them_is_well", remote, append(some(499, at("172.17.0.1", 1000), nil), some(5000, at("192.0.2.1", 1), nil)...), ""},
		{"one_public_client_is_well", remote, some(5000, at("192.0.2.1", 1000), nil), ""},
		{"a_load_test_on_the_host_itself_is_well", remote, some(5000, at("127.0.0.1", 1000), nil), ""},
		{"clients_behind_a_proxy_are_well", forwarded, some(5000, byProxy, func(i int) string { return fmt.Sprint("192.0.2.", i%250) }), ""},
		{"an_intranet_behind_a_proxy_is_well", forwarded, some(5000, byProxy, func(i int) string { return fmt.Sprint("172.17.0.", i%250) }), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := codes(logged(t, tt.f(), tt.requests...)); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRequestsAtTheSameTimeWarnOnce(t *testing.T) {
	key := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...)
	all := func(requests []*http.Request) (string, error) {
		var wg sync.WaitGroup
		for part := range slices.Chunk(requests, 500) {
			wg.Go(func() {
				for _, r := range part {
					_, _ = key(r)
				}
			})
		}
		wg.Wait()
		return "", nil
	}
	hidden := some(4000, byProxy, func(int) string { return "172.17.0.1" })
	behind := some(4000, byProxy, func(i int) string { return fmt.Sprintf("192.0.2.%d, 198.51.100.10", i%250+1) })
	untrusted := some(500, byProxy, func(int) string { return "198.51.100.1" })
	for _, r := range untrusted {
		r.Header[fwd] = []string{"for=6.6.6.6"}
	}
	if got := codes(logged(t, all, untrusted, hidden, behind)); got != "two-clients one-private-address one-client" {
		t.Errorf("said %q", got)
	}
}

// A warning names what the program has called, and what to do there.
func TestWarningsNameTheCall(t *testing.T) {
	perIP := func() keyfuncs.Func { return keyfuncs.Func(keyfuncs.ClientIP("nethttp.PerIP")) }
	proxied := func() keyfuncs.Func {
		return keyfuncs.Func(keyfuncs.ClientIP("nethttp.PerIP", prefixes("10.0.0.0/8")...))
	}
	remote := func() keyfuncs.Func { return keyfuncs.RemoteIP }
	for _, tt := range []struct {
		name     string
		f        func() keyfuncs.Func
		requests []*http.Request
		says     string
	}{
		{"PerIP_and_a_list", perIP, many(1, from("10.0.0.1:1", xff, "6.6.6.6")), "address nethttp.PerIP reads has the header X-Forwarded-For; if a proxy of yours sets it, all clients behind the proxy share one limit: call nethttp.PerIP with the proxy's prefix"},
		{"PerIP_and_Forwarded", perIP, many(1, from("10.0.0.1:1", fwd, "for=6.6.6.6")), "call nethttp.PerIP with the proxy's prefix"},
		{"PerIP_and_one_address", perIP, many(1, from("10.0.0.1:1", "X-Real-Ip", "6.6.6.6")), "write Limit with TrustedHeaderIP with the proxy's prefix"},
		{"PerIP_with_proxies", proxied, many(1, from("192.0.2.1:1", xff, "6.6.6.6")), "a peer that nethttp.PerIP does not trust"},
		{"RemoteIP_and_a_list", remote, many(1, from("10.0.0.1:1", fwd, "for=6.6.6.6")), "use ForwardedIP with the proxy's prefix"},
		{"RemoteIP_and_one_address", remote, many(1, from("10.0.0.1:1", "True-Client-Ip", "6.6.6.6")), "use TrustedHeaderIP with the proxy's prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines := logged(t, tt.f(), tt.requests...)
			if len(lines) != 1 || !strings.Contains(lines[0], tt.says) || strings.Contains(tt.name, "PerIP") && strings.Contains(lines[0], "RemoteIP") {
				t.Errorf("said %q, want %q", lines, tt.says)
			}
		})
	}
}
