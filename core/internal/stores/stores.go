// Package stores has what core and its packages need to know about any store.
package stores

import (
	"reflect"
	"time"
)

// A store is down if it has failed Trip times in a row, and its last failure is less than DownFor
// ago.
const (
	Trip    = 3
	DownFor = time.Minute
)

// IsNil reports whether s, a store or a client, is nil or a nil pointer in an interface.
func IsNil(s any) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
