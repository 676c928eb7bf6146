package redistest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// ended is how a test ended that needs a program.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Skip(args ...any)  { e.end("skipped", args) }
func (e *ended) Fatal(args ...any) { e.end("failed", args) }

func (e *ended) end(how string, args []any) {
	e.how = how + ": " + fmt.Sprint(args...)
	runtime.Goexit()
}

// Where redis-server is not installed a test that needs it is skipped, and fails if TAILCUT_REDIS is "required".
// It says what to install.
func TestWhereAProgramIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short no test starts one")
	}
	t.Setenv("PATH", "")
	for required, how := range map[string]string{"": "skipped", "required": "failed"} {
		t.Setenv("TAILCUT_REDIS", required)
		for program, need := range map[string]func(testing.TB){
			"redis-server": func(t testing.TB) { Start(t) },
			"lua5.4":       func(t testing.TB) { RunLua54(t, nil, nil) },
		} {
			e, done := &ended{TB: t}, make(chan struct{})
			go func() {
				defer close(done)
				need(e)
			}()
			<-done
			if want := how + ": " + program + " is not installed; get it with: apt-get install " + program; !strings.HasPrefix(e.how, want) {
				t.Errorf("%q, want %q", e.how, want)
			}
		}
	}
}
