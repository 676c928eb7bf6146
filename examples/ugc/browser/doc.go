// Package browser tests the page of examples/ugc in a real headless Chromium, by what a person
// sees. It is a separate module, which keeps the browser's driver out of the main go.mod.
//
//	cd examples/ugc/browser && go test .
//	go test -screens /some/directory . # also keeps a picture of every state
//
// Without Chromium the tests are skipped, and fail if the environment variable
// TAILCUT_CHROMIUM is "required".
//
// testdata/axe is axe-core 4.14.1 (npm, github.com/dequelabs/axe-core), unchanged, under
// the Mozilla Public License 2.0 in the same directory.
package browser
