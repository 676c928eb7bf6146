package core_test

import (
	"testing"
	"unsafe"

	"github.com/tailcut/tailcut/core"
)

// A store, a context and a charge are nine words, and no more are passed in registers on amd64. A charge of one
// word more makes each decision slower.
func TestChargeIsPassedInRegisters(t *testing.T) {
	if size := unsafe.Sizeof(core.Charge{}); size > 6*8 {
		t.Errorf("a charge has %d bytes; put what charges of a limiter share in Terms", size)
	}
}
