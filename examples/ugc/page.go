package main

// The page for people, at "/". It loads nothing from other servers.

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

//go:embed limits.go
var limitsSource string

// A site has everything that the routes of a framework serve.
type site struct {
	forum  *forum
	limits limits
	page   http.Handler
}

// newSite makes a site with a new forum. The page says in which framework it is served
// and where its limits are kept.
func newSite(framework, store string, l limits) *site {
	return &site{forum: newForum(), limits: l, page: newPage(framework, store)}
}

// A gauge describes an action for the page.
type gauge struct {
	Action, Title string
	MaxWait       int64  // milliseconds that a request waits rather than being refused
	Code          string // of the limit
}

// pagePolicy lets the page use the server's own files and nothing else: no inline
// script or style, no other server, no frame around it, and no markup made of text.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// newPage serves the page at "/" and its files under "/page/".
func newPage(framework, store string) http.Handler {
	var index bytes.Buffer
	err := template.Must(template.ParseFS(pageFiles, "page/index.html")).Execute(&index, struct {
		Framework, Store string
		Gauges           []gauge
	}{framework, store, []gauge{
		{"reply", "Replies", 0, source("newReplyLimit")},
		{"like", "Likes", likeMaxWait.Milliseconds(), source("newLikeLimit")},
		{"post", "Posts", 0, source("newPostLimit")},
	}})
	if err != nil {
		panic(err)
	}
	files := http.FileServerFS(pageFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		if r.URL.Path == "/" {
			http.ServeContent(w, r, "index.html", time.Time{}, bytes.NewReader(index.Bytes()))
			return
		}
		files.ServeHTTP(w, r)
	})
}

// source is the body of a function of limits.go, as it stands there.
func source(name string) string {
	_, rest, _ := strings.Cut(limitsSource, "\nfunc "+name+"(")
	_, rest, _ = strings.Cut(rest, "{\n")
	body, _, ok := strings.Cut(rest, "\n}\n")
	if !ok {
		panic("limits.go has no function " + name)
	}
	return strings.ReplaceAll(strings.TrimPrefix(strings.ReplaceAll(body, "\n\t", "\n"), "\t"), "\t", "  ")
}
