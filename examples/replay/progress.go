package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progress counts what is read of the logs, and shows it.
type progress struct {
	size int64 // 0 is unknown
	out  io.Writer
	read atomic.Int64
}

// of counts what is read of a log.
func (p *progress) of(log io.Reader) io.Reader { return &counted{log, p} }

type counted struct {
	io.Reader
	by *progress
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.by.read.Add(int64(n))
	return n, err
}

// show draws a bar from the second second on, until stop is called.
func (p *progress) show() (stop func()) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		start := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		drawn := false
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(p.out, "\r%s\x1b[K", p.bar(time.Since(start)))
				drawn = true
			case <-done:
				if drawn {
					fmt.Fprint(p.out, "\r\x1b[K")
				}
				return
			}
		}
	})
	return func() {
		close(done)
		wait.Wait()
	}
}

// bar is the bar, after so long.
func (p *progress) bar(elapsed time.Duration) string {
	const width = 30
	read := p.read.Load()
	rate := fmt.Sprintf("%d MB, %d MB/s", read/1e6, int64(float64(read)/1e6/elapsed.Seconds()))
	if p.size <= 0 {
		return rate
	}
	share := min(1, float64(read)/float64(p.size))
	full := int(share * width)
	return fmt.Sprintf("[%s%s] %d%%, %s", strings.Repeat("#", full), strings.Repeat(".", width-full), int(share*100), rate)
}
