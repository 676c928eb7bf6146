package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core/storetest/redistest"
)

func build(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds the program, and the tests are short")
	}
	bin := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func TestThreeProcessesSendNineteenASecondTogether(t *testing.T) {
	server := redistest.Start(t)
	bin := build(t)
	start := time.Now()
	var wg sync.WaitGroup
	for p := range 3 {
		wg.Go(func() {
			var in, want strings.Builder
			for i := range 10 {
				fmt.Fprintf(&in, "user%d@%d.example\n", i, p)
				fmt.Fprintf(&want, "sent to user%d@%d.example\n", i, p)
			}
			var errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), bin, "-redis", server.Addr)
			cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), &errs
			if out, err := cmd.Output(); err != nil || string(out) != want.String() {
				t.Errorf("%v\n%s%s", err, out, &errs)
			}
		})
	}
	wg.Wait()
	// The first of the thirty goes at once, each other one 1/19 s after the one before.
	if took := time.Since(start); took < 29*time.Second/19 {
		t.Errorf("thirty mails took %s", took)
	}
}

// A waiter is a worker with one mail to send, without Redis. start returns when it has
// logged that.
type waiter struct {
	*exec.Cmd
	logs io.Reader
	out  bytes.Buffer
}

func start(t *testing.T, redis string) *waiter {
	t.Helper()
	w := &waiter{Cmd: exec.CommandContext(t.Context(), build(t), "-redis", redis)}
	w.Stdin, w.Stdout = strings.NewReader("user@0.example\n"), &w.out
	var err error
	if w.logs, err = w.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.logs.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return w
}

// ends checks that the worker ends well and what it has sent by then.
func (w *waiter) ends(t *testing.T, want string) {
	t.Helper()
	logs, _ := io.ReadAll(w.logs)
	if err := w.Wait(); err != nil || w.out.String() != want {
		t.Errorf("%v, %q, want %q\n%s", err, &w.out, want, logs)
	}
}

func TestAWorkerWaitsForRedis(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	w := start(t, server.Addr)
	server.Run()
	w.ends(t, "sent to user@0.example\n")
}

func TestAWorkerEndsWhileItWaits(t *testing.T) {
	w := start(t, "127.0.0.1:1") // nobody listens there
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.ends(t, "")
}

func TestAWorkerEndsWhileItWaitsForInput(t *testing.T) {
	server := redistest.Start(t)
	cmd := exec.CommandContext(t.Context(), build(t), "-redis", server.Addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(in, "user@0.example\n")
	if _, err := out.Read(make([]byte, 64)); err != nil { // it has sent that one, and waits for the next
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Second, func() { _ = in.Close() })
	if err := cmd.Wait(); err != nil || !late.Stop() {
		t.Errorf("it ended only with its input: %v", err)
	}
}

func TestAWorkerSaysThatALineIsTooLong(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), build(t))
	cmd.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "too long") {
		t.Errorf("%v, %s", err, out)
	}
}
