package examples

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const own = "github.com/tailcut/tailcut"

// linked returns what goes into a program that imports the packages: its packages, and
// the modules that they come from.
func linked(t *testing.T, imports ...string) (packages, modules []string) {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}"}, imports...)
	cmd := exec.Command("go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args, err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		packages = append(packages, path)
		if module != "" && module != own && !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	slices.Sort(modules)
	return packages, modules
}

// A program gets what its imports need, and no framework, client or test library besides.
func TestProgramsLinkOnlyWhatTheyUse(t *testing.T) {
	const (
		gin   = "github.com/gin-gonic/gin"
		echo4 = "github.com/labstack/echo/v4"
		echo5 = "github.com/labstack/echo/v5"
		redis = "github.com/redis/go-redis/v9"
	)
	large := []string{gin, echo4, echo5, redis}
	for _, tt := range []struct {
		name    string
		imports []string
		needs   string
		most    int // modules; the frameworks bring their own
	}{
		{"net/http with an in-process store", []string{"/core", "/core/memorystore", "/keyfuncs", "/nethttp", "/core/metrics", "/core/plans"}, "", 0},
		{"a program of ours that does that", []string{"/examples/nethttp"}, "", 0},
		{"Redis", []string{"/core/redisstore", "/nethttp"}, redis, 4},
		{"Gin", []string{"/ginlimit", "/core/memorystore"}, gin, 40},
		{"Echo v4", []string{"/echolimit", "/core/memorystore"}, echo4, 20},
		{"Echo v5", []string{"/echolimit/echov5", "/core/memorystore"}, echo5, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var imports []string
			for _, path := range tt.imports {
				imports = append(imports, own+path)
			}
			packages, modules := linked(t, imports...)
			if len(modules) > tt.most {
				t.Errorf("%d modules, at most %d are needed: %s", len(modules), tt.most, modules)
			}
			if slices.Contains(modules, "github.com/quic-go/quic-go") && tt.needs != gin {
				t.Errorf("without Gin it links QUIC: %s", modules)
			}
			for _, m := range large {
				if slices.Contains(modules, m) != (m == tt.needs) {
					t.Errorf("of %s the program needs %q; it links %s", large, tt.needs, modules)
				}
			}
			for _, test := range []string{
				"testing", own + "/core/storetest", own + "/nethttp/gate/gatetest", "github.com/alicebob/miniredis/v2",
				"pgregory.net/rapid", "github.com/anishathalye/porcupine", "go.uber.org/goleak",
			} {
				if slices.Contains(packages, test) {
					t.Errorf("it links %s, which is for tests", test)
				}
			}
		})
	}
}
