// Package stores has what core and the packages below it ask of any store.
package stores

import (
	"reflect"
	"time"
)

// A store that has failed Trip times in a row is down, for DownFor after its last failure.
const (
	Trip    = 3
	DownFor = time.Minute
)

// IsNil reports whether a store or a client is nil, or a nil pointer in an interface.
func IsNil(s any) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
