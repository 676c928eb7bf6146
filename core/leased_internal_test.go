package core

import (
	"testing"

	"github.com/tailcut/tailcut/core/machine"
)

// A kind that cannot be leased says why.
func TestCannotLeaseHasAReason(t *testing.T) {
	for k := range machine.Kinds() {
		if k != machine.KindBan && k.Prepaid() == (cannotPrepay[k] != "") {
			t.Errorf("%s: prepaid %t, and the reason is %q", k, k.Prepaid(), cannotPrepay[k])
		}
	}
}
