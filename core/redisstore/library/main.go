// Command library prints the library of Redis Functions of package redisstore, for an administrator who
// loads it:
//
//	go run github.com/tailcut/tailcut/core/redisstore/library | redis-cli -x FUNCTION LOAD
package main

import (
	"fmt"

	"github.com/tailcut/tailcut/core/redisstore"
)

func main() { fmt.Print(redisstore.Library()) }
