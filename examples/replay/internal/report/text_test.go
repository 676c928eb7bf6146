package report

import "testing"

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "alice", "老钱": "老钱", "a b": "a b",
		"\x1b[2J":    `"\x1b[2J"`,
		"\u009b2J":   `"\u009b2J"`,
		"\x9b2J":     `"\x9b2J"`, // some terminals take the byte for U+009B
		"\u202eevil": `"\u202eevil"`,
	} {
		if got := printable(name); got != want {
			t.Errorf("%q is printed as %s, want %s", name, got, want)
		}
	}
}
