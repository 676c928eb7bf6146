package main

// An attempt to log in, and the account that it names.

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
)

// An account is somebody who may log in.
type account struct {
	id         string
	salt, hash []byte
}

// iterations make a guess expensive, for a thief of the hashes too.
var iterations = 600_000

func newAccount(id, password string) *account {
	a := &account{id: id, salt: make([]byte, 16)}
	_, _ = rand.Read(a.salt) // it never fails
	a.hash = a.derive(password)
	return a
}

func (a *account) derive(password string) []byte {
	hash, err := pbkdf2.Key(sha256.New, password, a.salt, iterations, sha256.Size)
	if err != nil {
		panic(err) // of sizes, which are constant
	}
	return hash
}

// accounts are those of the program, by their names in lower case.
type accounts map[string]*account

func (a accounts) find(name string) *account { return a[strings.ToLower(strings.TrimSpace(name))] }

// nobody is checked in place of an account that does not exist, so that the time does not tell.
var nobody = newAccount("", rand.Text())

// An attempt is what a request asks for.
type attempt struct {
	Name, Password string
	account        *account // that of the name, or nil
}

type attemptKey struct{}

func attemptOf(r *http.Request) attempt {
	t, _ := r.Context().Value(attemptKey{}).(attempt)
	return t
}

// read returns the request with its attempt, or the status to answer. It runs outside of the limit, whose key is the
// account. It takes no multipart form, since net/http writes large ones to the disk.
func (s *service) read(r *http.Request) (*http.Request, int) {
	var t attempt
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			err = json.Unmarshal(body, &t)
		}
	case err == nil && kind == "application/x-www-form-urlencoded":
		err = r.ParseForm()
		t.Name, t.Password = r.PostForm.Get("name"), r.PostForm.Get("password")
	default:
		return r, http.StatusUnsupportedMediaType
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return r, http.StatusRequestEntityTooLarge
	} else if err != nil || t.Name == "" {
		return r, http.StatusBadRequest
	}
	t.account = s.accounts.find(t.Name)
	return r.WithContext(context.WithValue(r.Context(), attemptKey{}, t)), 0
}

// A service is what logins are made of.
type service struct {
	accounts accounts
	limits   limits
	right    func(ctx context.Context, a *account, password string) (bool, error)
}

// status checks the password of an attempt, and is the status to answer. It does not return before that, even if the
// client leaves: the attempt has its slot until then.
func (s *service) status(r *http.Request) int {
	t := attemptOf(r)
	switch right, err := s.right(r.Context(), t.account, t.Password); {
	case err != nil: // no failure of the client, unless it has left
		return http.StatusInternalServerError
	case !right:
		return http.StatusUnauthorized
	}
	return http.StatusNoContent // a real one sets the cookie of a new session
}

// right reports whether a password is that of the account, which may be nil.
func right(_ context.Context, a *account, password string) (bool, error) {
	exists := a != nil
	if !exists {
		a = nobody
	}
	return subtle.ConstantTimeCompare(a.derive(password), a.hash) == 1 && exists, nil
}
