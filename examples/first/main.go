package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/nethttp"
)

func main() {
	reply := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "posted") }
	http.Handle("POST /replies", nethttp.PerIP(5, time.Minute)(http.HandlerFunc(reply)))
	fmt.Println(http.ListenAndServe("localhost:8080", nil))
}
