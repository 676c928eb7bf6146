//go:build ignore

// This program writes forum.log.gz: three invented days of a forum. The addresses are from the
// ranges that are reserved for documentation.
package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

type line struct {
	at   time.Time
	text string
}

var (
	random = rand.New(rand.NewPCG(2026, 11))
	start  = time.Date(2026, 11, 16, 0, 0, 0, 0, time.FixedZone("", 8*3600))
	agents = []string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1",
	}
	lines []line
)

// act writes a request, in the order in which it ends. Who writes has logged in as id.
func act(address, id string, at time.Time, request string, status, size int) {
	if strings.HasPrefix(request, "GET ") {
		id = "-"
	}
	lines = append(lines, line{at.Add(time.Duration(random.ExpFloat64() * float64(300*time.Millisecond))), fmt.Sprintf("%s - %s [%s] \"%s HTTP/2.0\" %d %d \"-\" \"%s\"\n",
		address, id, at.Format("02/Jan/2006:15:04:05 -0700"), request, status, size, agents[len(address)%len(agents)])})
}

func address(i int) string {
	switch ranges := []string{"192.0.2.", "198.51.100.", "203.0.113."}; {
	case i < 3*254:
		return fmt.Sprint(ranges[i/254], i%254+1)
	default:
		return fmt.Sprintf("2001:db8:%x:%x::%x", i>>4, i&15, random.IntN(1<<16))
	}
}

// daytime is an instant of a day, more of them in the evening.
func daytime(day int) time.Time {
	for {
		at := random.Float64() * 24
		if random.Float64() < 0.08+math.Exp(-(at-20.5)*(at-20.5)/12)+0.5*math.Exp(-(at-12.5)*(at-12.5)/5) {
			return start.Add(time.Duration(day)*24*time.Hour + time.Duration(at*float64(time.Hour)))
		}
	}
}

func visit(user, id string, at time.Time) {
	post := random.IntN(400)
	for range 1 + random.IntN(6) {
		act(user, id, at, fmt.Sprintf("GET /posts/%d", post), 200, 5000+random.IntN(20_000))
		at = at.Add(time.Duration(5+random.ExpFloat64()*40) * time.Second)
		if random.IntN(3) == 0 {
			for range 1 + random.IntN(5) {
				act(user, id, at, fmt.Sprintf("POST /posts/%d/likes", post), 204, 0)
				at = at.Add(time.Duration(random.IntN(4)) * time.Second)
				post = random.IntN(400)
			}
		}
		if random.IntN(6) == 0 {
			at = at.Add(time.Duration(20+random.IntN(60)) * time.Second)
			act(user, id, at, fmt.Sprintf("POST /posts/%d/replies", post), 201, 300)
		}
	}
}

func main() {
	log.SetFlags(0)
	for user := range 1500 {
		for day := range 3 {
			if random.IntN(2) == 0 {
				continue
			}
			for range 1 + random.IntN(2) {
				visit(address(user), fmt.Sprint("u", 1000+user), daytime(day))
			}
		}
	}
	night := start.Add(27 * time.Hour)
	for i := range 400 { // somebody advertises at night
		act("203.0.113.77", "u9001", night.Add(time.Duration(i*7)*time.Second), fmt.Sprintf("POST /posts/%d/replies", i), 201, 300)
	}
	for i := range 250 { // and somebody likes everything
		act("2001:db8:ffff:1::7", "u9002", start.Add(45*time.Hour+time.Duration(i*300)*time.Millisecond), fmt.Sprintf("POST /posts/%d/likes", i), 204, 0)
	}
	for i := range 120 { // and an office of 24 talks after lunch
		act("203.0.113.200", fmt.Sprint("u", 9100+i%24), start.Add(37*time.Hour+time.Duration(i*8)*time.Second), fmt.Sprintf("POST /posts/%d/replies", 7*(i%3)), 201, 300)
	}
	for range 30 {
		at := daytime(random.IntN(3))
		lines = append(lines, line{at, fmt.Sprintf("%s - - [%s] \"\\x16\\x03\\x01\" 400 157 \"-\" \"-\"\n", address(random.IntN(1500)), at.Format("02/Jan/2006:15:04:05 -0700"))})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.text)
	}
	f, err := os.Create("forum.log.gz")
	if err != nil {
		log.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	if _, err := io.WriteString(z, text.String()); err != nil {
		log.Fatal(err)
	}
	if err := z.Close(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}
