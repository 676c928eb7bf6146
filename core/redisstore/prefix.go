package redisstore

// Whether another application uses the same prefix.

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/tailcut/tailcut/core/redisstore/internal/batch"
)

// appTime is how long Redis keeps the name of an application after its last start.
const appTime = 30 * 24 * time.Hour

// longestOther bounds the name of another application in the log. It is how many bytes this name
// may have more than the name of this application.
const longestOther = 100

// checkPrefix writes to Redis which application has the prefix. If another application has the
// prefix already, checkPrefix logs a warning instead. A store checks once.
func (w *wire) checkPrefix(ctx context.Context) {
	app := cmp.Or(w.options.App, mainModule())
	if app == "" || w.prefixChecked.Swap(true) {
		return
	}
	keys := []string{w.options.Prefix + ":application"} // it is no user's key: the key of a user has a brace after the colon
	ask := func(args ...any) (string, error) {
		reply, err := w.do(ctx, &batch.Call{Keys: keys, Command: simple(1, args...)})
		if err != nil {
			return "", err
		}
		text, _ := reply[0].(string)
		return text, nil
	}
	other, err := ask("getrange", keys[0], 0, len(app)+longestOther) // another program may have written any value
	switch {
	case err == nil && other != "" && other != app:
		slog.Default().Warn("redisstore: another application uses the same prefix, so they count users and actions of the same name together; give each its own Options.Prefix, or the same Options.App if that is on purpose",
			"code", "redis-shared-prefix", "prefix", w.options.Prefix, "application", app, "other", other)
	case err == nil:
		_, _ = ask("set", keys[0], app, "px", appTime.Milliseconds())
	}
}

// mainModule returns the path of the program's main module. It returns "" for the tests and
// examples of this module.
func mainModule() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path == "github.com/tailcut/tailcut" {
		return ""
	}
	return info.Main.Path
}
