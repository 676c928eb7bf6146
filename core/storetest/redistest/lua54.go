package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
)

//go:embed lua54.lua
var lua54 string

// RunLua54 has a proxy run scripts itself, by Lua 5.4, as Dragonfly does, and say that it has no functions.
// The commands of a script go to the server. A script fails if a number that it returns or has in a command is a
// float, or if it uses a global variable that Lua 5.4 has not. answer, if not nil, answers a script's
// command in the server's place, unless it returns nil.
func RunLua54(t testing.TB, p *Proxy, answer func(command []string) []byte) {
	t.Helper()
	if _, err := exec.LookPath("lua5.4"); err != nil {
		missing(t, "lua5.4", "lua5.4")
	}
	l := &lua{scripts: map[string]string{}, command: exec.Command("lua5.4", "-e"+lua54), answer: answer}
	in, err := l.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.in, l.out, l.command.Stderr = in, bufio.NewReader(out), os.Stderr
	if err := l.command.Start(); err != nil {
		t.Fatal(err)
	}
	server, err := net.Dial("tcp", p.targets[0])
	if err != nil {
		t.Fatal(err)
	}
	l.server, l.fromServer = server, bufio.NewReader(server)
	t.Cleanup(func() {
		p.Answer(nil)
		l.mu.Lock() // the last script has ended
		defer l.mu.Unlock()
		_ = in.Close()
		_ = server.Close()
		_ = l.command.Wait()
	})
	p.Answer(l.reply)
}

// lua is a process of Lua 5.4, which runs one script at a time.
type lua struct {
	mu         sync.Mutex
	scripts    map[string]string // by SHA-1
	command    *exec.Cmd
	in         io.Writer
	out        *bufio.Reader
	server     io.Writer
	fromServer *bufio.Reader
	answer     func(command []string) []byte
}

func (l *lua) reply(command []string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch command[0] {
	case "fcall", "function":
		return fmt.Appendf(nil, "-ERR unknown command '%s', with args beginning with:\r\n", command[0])
	case "eval":
		l.scripts[fmt.Sprintf("%x", sha1.Sum([]byte(command[1])))] = command[1]
		return l.run(command[1:])
	case "evalsha":
		source, known := l.scripts[command[1]]
		if !known {
			return []byte("-NOSCRIPT No matching script.\r\n")
		}
		return l.run(append([]string{source}, command[2:]...))
	}
	return nil
}

// run runs a script, whose words are its source, how many keys there are, the keys and the arguments.
func (l *lua) run(words []string) []byte {
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := l.in.Write(request); err != nil {
		return fmt.Appendf(nil, "-ERR %v\r\n", err)
	}
	for {
		reply, ended, err := l.next()
		switch {
		case err != nil:
			return fmt.Appendf(nil, "-ERR %v\r\n", err)
		case ended:
			return reply
		}
		if _, err := l.in.Write(reply); err != nil {
			return fmt.Appendf(nil, "-ERR %v\r\n", err)
		}
	}
}

// next returns the script's reply if it has ended, or else the reply to its next command.
func (l *lua) next() (reply []byte, ended bool, err error) {
	mark, err := l.out.ReadByte()
	if err != nil {
		return nil, false, err
	}
	var b bytes.Buffer
	if mark == '=' {
		err := readReply(l.out, &b)
		return b.Bytes(), true, err
	}
	raw, words, err := readCommand(l.out)
	if err != nil {
		return nil, false, err
	}
	if l.answer != nil {
		if reply := l.answer(words); reply != nil {
			return reply, false, nil
		}
	}
	if _, err := l.server.Write(raw); err != nil {
		return nil, false, err
	}
	err = readReply(l.fromServer, &b)
	return b.Bytes(), false, err
}
