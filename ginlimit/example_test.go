package ginlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// Two replies a minute, per user. Recovery, CORS and authentication come before the
// limit.
func ExampleLimit() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(2, time.Minute)))

	r := gin.New()
	r.Use(gin.Recovery(), cors, auth)
	r.POST("/posts/:id/replies",
		ginlimit.Limit(replies, ginlimit.Value("user"), ginlimit.Action("reply")),
		func(c *gin.Context) { c.Status(http.StatusCreated) })

	for range 3 {
		req := httptest.NewRequest("POST", "/posts/42/replies", nil)
		req.Header.Set("Authorization", "Bearer of alice")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Printf("%d, remaining %s, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 201, remaining 1, retry after ""
	// 201, remaining 0, retry after ""
	// 429, remaining 0, retry after "60"
}

// cors does in short what gin-contrib/cors does with ExposeHeaders: nethttp.ExposedHeaders().
func cors(c *gin.Context) {
	c.Header("Access-Control-Allow-Origin", "https://app.example")
	c.Header("Access-Control-Expose-Headers", strings.Join(nethttp.ExposedHeaders(), ", "))
}

func auth(c *gin.Context) {
	user, ok := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer of ")
	if !ok {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Set("user", user)
	if user != "carol" {
		c.Set("org", "acme")
	}
}

// Two posts a minute per user and three per organization. A refused post is charged to neither. A user
// without an organization, as carol, is limited like one.
func ExampleLimitAll() {
	store := memorystore.New(nil)
	perUser := core.Must(core.New(store, core.SlidingWindow(2, time.Minute)))
	perOrg := core.Must(core.New(store, core.SlidingWindow(3, time.Minute)))
	user := ginlimit.Value("user")
	org := keyfuncs.First(ginlimit.Value("org"), user)

	r := gin.New()
	r.Use(gin.Recovery(), auth)
	r.POST("/posts",
		ginlimit.LimitAll(
			ginlimit.By(perUser, user, ginlimit.Action("post")),
			ginlimit.By(perOrg, org, ginlimit.Action("org-post"))),
		func(c *gin.Context) { c.Status(http.StatusCreated) })

	for _, name := range []string{"alice", "alice", "alice", "bob", "bob", "carol"} {
		req := httptest.NewRequest("POST", "/posts", nil)
		req.Header.Set("Authorization", "Bearer of "+name)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Printf("%s: %d, limit %s, remaining %s\n", name, w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// alice: 201, limit 2, remaining 1
	// alice: 201, limit 2, remaining 0
	// alice: 429, limit 2, remaining 0
	// bob: 201, limit 3, remaining 0
	// bob: 429, limit 3, remaining 0
	// carol: 201, limit 2, remaining 1
}

// At a login the name is only a claim. Limit the name and the address together, so that
// another address cannot lock its owner out, and count failures only. Limit the address alone, which would
// otherwise try many names, and last all users together.
func ExampleLimit_login() {
	store := memorystore.New(nil)
	perName := core.Must(core.New(store, core.SlidingWindow(1, 15*time.Minute)))
	perAddress := core.Must(core.New(store, core.SlidingWindow(2, 15*time.Minute)))
	together := core.Must(core.New(store, core.Funnel(1000, core.Per(100, time.Second))))

	address := ginlimit.From(keyfuncs.RemoteIP)
	name := func(c *gin.Context) (string, error) {
		if s := c.PostForm("name"); s != "" {
			return s, nil
		}
		return "", keyfuncs.ErrNoKey
	}
	wrong := func(_ *gin.Context, status int) bool { return status == http.StatusUnauthorized }
	r := gin.New()
	r.POST("/login",
		ginlimit.Limit(perAddress, address, ginlimit.Action("login-address")),
		ginlimit.Config{OnlyFailures: wrong}.Limit(perName, keyfuncs.Join(name, address), ginlimit.Action("login")),
		ginlimit.Limit(together, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("login-all")),
		func(c *gin.Context) { c.String(http.StatusUnauthorized, "wrong password") })

	for _, body := range []string{"name=alice", "name=alice", "name=xiaoming"} {
		req := httptest.NewRequest("POST", "/login", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 429
	// 429
}

// Plans, a cost by the request and your own answer.
func ExampleConfig() {
	store := memorystore.New(nil)
	free := core.Must(core.New(store, core.FixedWindow(10, time.Hour)))
	paid := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))

	exports := ginlimit.Config{
		Limiter: func(c *gin.Context) (*core.Limiter, error) {
			if c.GetHeader("X-Plan") == "paid" {
				return paid, nil
			}
			return nil, nil // free
		},
		Cost: func(c *gin.Context) (int, error) {
			if c.Query("format") == "pdf" {
				return 8, nil
			}
			return 1, nil
		},
		Deny: func(c *gin.Context, _ core.Decision) { c.String(http.StatusTooManyRequests, "upgrade") },
		Keep: true,
	}
	r := gin.New()
	r.GET("/export", exports.Limit(free, ginlimit.From(keyfuncs.Header("X-User-ID")), ginlimit.Route), func(c *gin.Context) {
		d, _ := ginlimit.Decision(c)
		c.String(http.StatusOK, "an export; %d units are left", d.Remaining)
	})

	for _, plan := range []string{"free", "free", "paid"} {
		req := httptest.NewRequest("GET", "/export?format=pdf", nil)
		req.Header.Set("X-User-ID", "alice")
		req.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Println(plan, w.Code, w.Body)
	}
	// Output:
	// free 200 an export; 2 units are left
	// free 429 upgrade
	// paid 200 an export; 984 units are left
}

// Only the handler knows who logs in. Allow answers a refusal as the Limit around it does. Failures are
// counted, and right passwords are not: see core.OnlyFailures.
func ExampleAllow() {
	store := memorystore.New(nil)
	perAddress := core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute)))
	perName := core.Must(core.New(store, core.SlidingWindow(1, 15*time.Minute)))
	perName = core.Must(perName.With(core.OnlyFailures{}))

	r := gin.New()
	r.POST("/login", ginlimit.Limit(perAddress, ginlimit.From(keyfuncs.RemoteIP), ginlimit.Action("login-address")), func(c *gin.Context) {
		var login struct{ Name, Password string }
		if c.BindJSON(&login) != nil {
			return
		}
		address, _ := keyfuncs.RemoteIP(c.Request) // or anybody could lock the name's owner out
		who, ctx := login.Name+" from "+address, context.WithoutCancel(c.Request.Context())
		d := ginlimit.Allow(c, perName, who, "login", 1)
		if !d.Allowed {
			return
		}
		defer perName.Release(ctx, d)
		if login.Password != "secret" {
			_, _ = perName.Surcharge(ctx, who, "login", 1) // an error means that it is not counted: log it
			c.String(http.StatusUnauthorized, "wrong password")
		}
	})

	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("POST", "/login", strings.NewReader(`{"name": "alice"}`)))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 401 0
	// 429 0
}
