package gate_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The commands in the documentation of each Allow find a handler that drops its decision.
func TestGoVetFindsADroppedDecision(t *testing.T) {
	if testing.Short() {
		t.Skip("go vet compiles the four frameworks")
	}
	for _, file := range []string{"../nethttp.go", "../../ginlimit/ginlimit.go", "../../echolimit/echolimit.go", "../../echolimit/echov5/echolimit.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		command := regexp.MustCompile(`go vet (-unusedresult\S*) (-unusedresult\S*) \./\.\.\.`).FindStringSubmatch(string(source))
		if command == nil {
			t.Fatalf("%s: no command", file)
		}
		out, err := exec.CommandContext(t.Context(), "go", "vet", command[1], command[2], "./testdata/dropped").CombinedOutput()
		if err == nil || strings.Count(string(out), "Allow call not used") != 1 {
			t.Errorf("%s: %s reports %v\n%s", file, command[0], err, out)
		}
	}
}
