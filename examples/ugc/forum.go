package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The bounds of the forum, so that a demo cannot eat the machine.
const (
	maxPosts   = 1000
	maxReplies = 100 // of one post
	maxText    = 500 // characters
	maxAuthor  = 64  // characters
	maxBody    = 8 << 10

	shownPosts   = 20 // in a list
	shownReplies = 5  // of a post in a list
)

var (
	errNoPost = errors.New("there is no such post")
	errFull   = errors.New("the forum is full")
	errJSON   = errors.New(`the body is not JSON such as {"text": "hello"}`)
	errText   = fmt.Errorf("the text is empty or longer than %d characters", maxText)
	errAuthor = fmt.Errorf("the user's name is longer than %d characters", maxAuthor)
)

// A forum keeps posts, their replies and their likes in memory.
type forum struct {
	began int64 // microseconds since 1970; tells this forum from others

	mu      sync.Mutex
	posts   []*post // post n stands at n-1, none ever goes
	version int     // counts the changes
}

type post struct {
	ID      int     `json:"id"`
	Author  string  `json:"author"`
	Text    string  `json:"text"`
	Likes   int     `json:"likes"`
	Replies []reply `json:"replies"`
}

type reply struct {
	ID     int    `json:"id"`
	Author string `json:"author"`
	Text   string `json:"text"`
}

// newForum makes a forum with one post in it.
func newForum() *forum {
	f := &forum{began: time.Now().UnixMicro()}
	f.addPost("tailcut", "Drop the tail, keep the animal.")
	return f
}

func (f *forum) addPost(author, text string) (post, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.posts) == maxPosts {
		return post{}, errFull
	}
	p := &post{ID: len(f.posts) + 1, Author: author, Text: text, Replies: []reply{}}
	f.posts = append(f.posts, p)
	f.version++
	return *p, nil
}

func (f *forum) addReply(id int, author, text string) (reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(id)
	if err != nil {
		return reply{}, err
	}
	if len(p.Replies) == maxReplies {
		return reply{}, errFull
	}
	r := reply{ID: len(p.Replies) + 1, Author: author, Text: text}
	p.Replies = append(p.Replies, r)
	f.version++
	return r, nil
}

func (f *forum) addLike(id int) (likes int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(id)
	if err != nil {
		return 0, err
	}
	p.Likes++
	f.version++
	return p.Likes, nil
}

// post returns a copy. It shares the replies, which are appended to and never
// changed.
func (f *forum) post(id int) (post, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(id)
	if err != nil {
		return post{}, err
	}
	return *p, nil
}

// A listing is the newest posts, the newest first, each with its newest replies.
type listing struct {
	Version int      `json:"version"`
	Posts   []listed `json:"posts"`
}

type listed struct {
	post
	Earlier int `json:"earlier"` // replies that are not listed
}

func (f *forum) newest() listing {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := listing{Version: f.version, Posts: []listed{}}
	for i := len(f.posts) - 1; i >= 0 && len(list.Posts) < shownPosts; i-- {
		l := listed{post: *f.posts[i]}
		l.Earlier = max(0, len(l.Replies)-shownReplies)
		l.Replies = l.Replies[l.Earlier:]
		list.Posts = append(list.Posts, l)
	}
	return list
}

// changes is a number that differs whenever the forum does.
func (f *forum) changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// find is called with the lock held.
func (f *forum) find(id int) (*post, error) {
	if id < 1 || id > len(f.posts) {
		return nil, errNoPost
	}
	return f.posts[id-1], nil
}

// An endpoint serves a route in every framework. id is the post's id in the path, if there
// is one.
type endpoint func(r *http.Request, id string) answer

// An answer is an endpoint's: a status, a body for JSON, and perhaps the location of
// the new thing.
type answer struct {
	status   int
	body     any
	location string
}

func (f *forum) createPost(r *http.Request, _ string) answer {
	author, text, err := written(r)
	if err != nil {
		return failed(err)
	}
	p, err := f.addPost(author, text)
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusCreated, body: p, location: "/posts/" + strconv.Itoa(p.ID)}
}

func (f *forum) createReply(r *http.Request, id string) answer {
	author, text, err := written(r)
	if err != nil {
		return failed(err)
	}
	rep, err := f.addReply(number(id), author, text)
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusCreated, body: rep}
}

func (f *forum) like(_ *http.Request, id string) answer {
	likes, err := f.addLike(number(id))
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusOK, body: map[string]int{"likes": likes}}
}

func (f *forum) list(*http.Request, string) answer {
	return answer{status: http.StatusOK, body: f.newest()}
}

func (f *forum) show(_ *http.Request, id string) answer {
	p, err := f.post(number(id))
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusOK, body: p}
}

// written reads the author and the text from a request.
func written(r *http.Request) (author, text string, err error) {
	author = strings.TrimSpace(r.Header.Get(userHeader))
	switch {
	case author == "":
		author = "anonymous"
	case utf8.RuneCountInString(author) > maxAuthor:
		return "", "", errAuthor
	}
	var in struct {
		Text string `json:"text"`
	}
	dec := json.NewDecoder(r.Body)
	if err := dec.Decode(&in); err != nil {
		return "", "", errors.Join(errJSON, err)
	}
	if err := dec.Decode(&struct{}{}); err != io.EOF {
		return "", "", errors.Join(errJSON, err)
	}
	text = strings.TrimSpace(in.Text)
	if text == "" || utf8.RuneCountInString(text) > maxText {
		return "", "", errText
	}
	// Without a copy, the short strings would keep the header and the body in memory.
	return strings.Clone(author), strings.Clone(text), nil
}

// number returns 0, which no post has, if id is not a number.
func number(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil {
		return 0
	}
	return n
}

func failed(err error) answer {
	status, message := http.StatusBadRequest, err.Error()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		status, message = http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxBody)
	case errors.Is(err, errJSON):
		message = errJSON.Error()
	case errors.Is(err, errNoPost):
		status = http.StatusNotFound
	case errors.Is(err, errFull):
		status = http.StatusInsufficientStorage
	}
	return answer{status: status, body: map[string]string{"error": message}}
}
