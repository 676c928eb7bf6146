// Command worker sends mails to the addresses that it reads, one a line. The provider
// takes twenty a second from one account, so all processes with the same Redis wait for
// their turn together, and send nineteen:
//
//	worker -redis 127.0.0.1:6379 <addresses
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "the address of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// Without a core.Fallback: if Redis is down, mails wait.
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true}), nil)
	// The provider counts mails when they arrive, and the network delays some more than others. So they leave one
	// by one, and one of the twenty is unused: that leaves room for delays that differ by 52 ms.
	mails := core.Must(core.New(store, core.Funnel(1, core.Per(19, time.Second))))

	in := bufio.NewScanner(os.Stdin)
	addresses := make(chan string)
	go func() { // Scan does not end with ctx
		defer close(addresses)
		for in.Scan() {
			addresses <- in.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case address, ok := <-addresses:
			if !ok {
				if err := in.Err(); err != nil {
					log.Fatal(err)
				}
				return
			}
			if !turn(ctx, mails) {
				return
			}
			fmt.Println("sent to", address) // where the mail is sent
		}
	}
}

// turn waits until a mail may be sent. It returns false if the program is to end.
func turn(ctx context.Context, mails *core.Limiter) bool {
	for {
		_, err := mails.Wait(ctx, "our-account", "mail")
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}
