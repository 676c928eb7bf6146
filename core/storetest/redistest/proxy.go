package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Fault says what becomes of a command's reply: what the client is sent in its
// place, nil being nothing at all, and whether the connection ends then. It may take
// its time. The server has run the command already.
type Fault func(command []string, reply []byte) (send []byte, hangUp bool)

// Proxy stands between clients and a server, or several, passes on one command at a time, counts
// them and spoils replies.
type Proxy struct {
	Addr string // 127.0.0.1:port

	t        testing.TB
	targets  []string
	route    func(command []string) (target int)
	listener net.Listener

	mu       sync.Mutex
	fault    Fault
	pause    time.Duration // between two bytes of a reply
	answer   func(command []string) []byte
	instead  func(command []string) (mine bool, reply []byte)
	commands [][]string
	conns    map[net.Conn]bool
	closed   bool
	wg       sync.WaitGroup
}

// StartProxy starts one in front of the server at target, which ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, []string{target}, func([]string) int { return 0 })
}

// startProxy starts a proxy that sends each command to the target that route says.
func startProxy(t testing.TB, targets []string, route func(command []string) int) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), t: t, targets: targets, route: route, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(p.Close)
	return p
}

// Spoil has every reply from now on pass through f; nil ends that.
func (p *Proxy) Spoil(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Split has every reply from now on be sent a byte at a time, with such a pause before each; 0 ends that.
func (p *Proxy) Split(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
}

// Answer has f answer commands in the server's place, which does not see them; what f
// gives nil for passes. A nil f ends that.
func (p *Proxy) Answer(f func(command []string) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// Instead has f answer commands as Answer does, if it says that it does. Without an answer the connection ends.
func (p *Proxy) Instead(f func(command []string) (mine bool, reply []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead = f
}

// Commands returns the commands since the last call, in the order of their arrival,
// less those with which a client opens its connection.
func (p *Proxy) Commands() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.commands
	p.commands = nil
	return c
}

// HangUp ends all connections.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.HangUp()
	p.wg.Wait()
}

func (p *Proxy) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !on {
		delete(p.conns, c)
		return
	}
	if p.conns[c] = true; p.closed {
		_ = c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.track(client, true)
	defer p.track(client, false)
	var servers []net.Conn
	var replies []*bufio.Reader
	for _, target := range p.targets {
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer server.Close()
		p.track(server, true)
		defer p.track(server, false)
		servers, replies = append(servers, server), append(replies, bufio.NewReader(server))
	}
	fromClient := bufio.NewReader(client)
	for {
		raw, command, err := readCommand(fromClient)
		if err != nil {
			return
		}
		p.mu.Lock()
		fault, answer, instead, pause := p.fault, p.answer, p.instead, p.pause
		opening := slices.Contains([]string{"hello", "client", "auth", "select", "cluster", "command", "ping"}, command[0])
		if !opening {
			p.commands = append(p.commands, command)
		}
		p.mu.Unlock()
		if instead != nil {
			if mine, reply := instead(command); mine {
				if _, err := client.Write(reply); err != nil || len(reply) == 0 {
					return
				}
				continue
			}
		}
		if answer != nil {
			if reply := answer(command); reply != nil {
				if _, err := client.Write(reply); err != nil {
					return
				}
				continue
			}
		}
		target := p.route(command)
		if _, err := servers[target].Write(raw); err != nil {
			return
		}
		var reply bytes.Buffer
		if err := readReply(replies[target], &reply); err != nil {
			return
		}
		send, hangUp := reply.Bytes(), false
		if fault != nil && !opening {
			send, hangUp = fault(command, send)
		}
		for ; pause > 0 && len(send) > 1; send = send[1:] {
			if _, err := client.Write(send[:1]); err != nil {
				return
			}
			time.Sleep(pause)
		}
		if _, err := client.Write(send); err != nil || hangUp {
			return
		}
	}
}

// readCommand reads an array of bulk strings. The command's name is in lower case.
func readCommand(r *bufio.Reader) (raw []byte, words []string, err error) {
	var b bytes.Buffer
	if err := readReply(r, &b); err != nil {
		return nil, nil, err
	}
	raw = b.Bytes()
	for lines := bufio.NewReader(bytes.NewReader(raw[bytes.IndexByte(raw, '\n')+1:])); ; {
		head, err := lines.ReadString('\n')
		if err == io.EOF && len(words) > 0 {
			words[0] = strings.ToLower(words[0])
			return raw, words, nil
		}
		if err != nil || head[0] != '$' {
			return nil, nil, fmt.Errorf("not a command: %q", raw)
		}
		n, _ := strconv.Atoi(strings.TrimSpace(head[1:]))
		word := make([]byte, n+2)
		if _, err := io.ReadFull(lines, word); err != nil {
			return nil, nil, err
		}
		words = append(words, string(word[:n]))
	}
}

// readReply copies one RESP value as it is.
func readReply(r *bufio.Reader, to *bytes.Buffer) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	to.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$', '=', '!':
		if n >= 0 {
			_, err = io.CopyN(to, r, int64(n)+2)
		}
		return err
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	default:
		return nil
	}
	for range n {
		if err := readReply(r, to); err != nil {
			return err
		}
	}
	return nil
}
