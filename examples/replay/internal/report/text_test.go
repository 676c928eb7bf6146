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
		if got := Printable(name); got != want {
			t.Errorf("%q is printed as %s, want %s", name, got, want)
		}
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1_000: "1,000", 12_345: "12,345", 999_999: "999,999",
		1_234_567: "1,234,567", 123_456_789: "123,456,789", 1_234_567_890: "1,234,567,890",
	} {
		if got := group(n); got != want {
			t.Errorf("%d is printed as %s, want %s", n, got, want)
		}
	}
}
