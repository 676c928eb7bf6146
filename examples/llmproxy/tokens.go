package main

// Tokens: the most that a request can use is charged when it begins, and what it has used when it ends.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const (
	quota   = 100_000   // tokens of a customer, in any minute
	answer  = 4_000     // tokens of an answer, if the request does not say how many
	picture = 5_000     // tokens of an image: set it to the most that your models take
	hidden  = 500       // tokens that the upstream adds to a prompt
	longest = 4 << 20   // bytes of a request
	most    = 256 << 10 // bytes of an event, or of an answer that is not a stream, in which usage is looked for
)

// caps has the paths of the usual APIs, and the fields that bound an answer. The first is set if there is none.
var caps = map[string][]string{
	"/v1/chat/completions": {"max_completion_tokens", "max_tokens"}, // if your upstream knows only max_tokens, put it first
	"/v1/responses":        {"max_output_tokens"},
	"/v1/messages":         {"max_tokens"},
}

// The fields and the types that pass. Others could use tokens that are not in the request: of several answers, of
// tools that the upstream runs, of files, and of what is stored in our account, by other customers too.
var (
	fields = strings.Fields("model messages input system instructions stream stream_options temperature top_p top_k stop " +
		"stop_sequences tools tool_choice parallel_tool_calls response_format text reasoning reasoning_effort thinking " +
		"frequency_penalty presence_penalty seed user")
	tools  = strings.Fields("function custom")
	images = strings.Fields("image_url input_image image")
	parts  = strings.Fields("message text input_text output_text refusal thinking reasoning tool_use tool_result function_call function_call_output")
)

// A job is a request as it goes to the upstream, and how many tokens it uses at most.
type job struct {
	body           []byte
	prompt, answer int
}

type jobKey struct{} // of the job in the context

func jobOf(r *http.Request) job { j, _ := r.Context().Value(jobKey{}).(job); return j }

// read reads a request, asks for the usage, and caps the answer. A token of a text is a byte or more, so the prompt has
// at most as many tokens as the request has bytes.
func read(path string, from io.Reader) (j job, err error) {
	var body map[string]any
	d := json.NewDecoder(from)
	d.UseNumber()
	if err := d.Decode(&body); err != nil || body == nil {
		return j, cmp.Or(err, errors.New("the request is no JSON object"))
	}
	for name, value := range body {
		if slices.Contains(caps[path], name) {
			n, _ := value.(json.Number)
			tokens, err := n.Int64()
			if err != nil || tokens < 1 || tokens > quota {
				return j, fmt.Errorf("%s is not within 1 to %d", name, quota)
			}
			j.answer = max(j.answer, int(tokens))
		} else if !slices.Contains(fields, name) {
			return j, fmt.Errorf("the field %q is not passed on", name)
		}
	}
	if j.answer == 0 {
		j.answer, body[caps[path][0]] = answer, answer
	}
	delete(body, "stream_options")
	if path == "/v1/chat/completions" && body["stream"] == true {
		body["stream_options"] = map[string]any{"include_usage": true} // the others report it without being asked
	}
	err = errors.Join(j.typed(body["tools"], tools), j.typed(body["messages"], parts), j.typed(body["input"], parts), j.typed(body["system"], parts))
	if err != nil {
		return j, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(body)
	j.body = b.Bytes()
	j.prompt += len(j.body) + hidden
	return j, err
}

// typed checks the types of tools, or of messages and their parts. An image is charged in place of its bytes.
func (j *job) typed(v any, known []string) error {
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			if err := j.typed(part, known); err != nil {
				return err
			}
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		if slices.Contains(images, kind) {
			j.prompt += picture - len(imageIn(v))
			return nil
		}
		if v["type"] != nil && !slices.Contains(known, kind) {
			return errors.New("a tool, or a part of a message, has a type that is not passed on")
		}
		return errors.Join(j.typed(v["content"], known), j.typed(v["output"], known))
	}
	return nil
}

// imageIn is the image that a part brings along, which is no text.
func imageIn(part map[string]any) string {
	if source, _ := part["source"].(map[string]any); source["type"] == "base64" {
		data, _ := source["data"].(string)
		return data
	}
	url := part["image_url"]
	if inner, ok := url.(map[string]any); ok {
		url = inner["url"]
	}
	if data, _ := url.(string); strings.HasPrefix(data, "data:image/") {
		return data
	}
	return ""
}

// metered limits the tokens of a customer. A request is admitted if there is room for all that it may use. The customer
// gets back what the upstream reports as unused, at the end of the answer. One who disconnects before that has had
// the upstream work, and gets nothing back.
func metered(store core.Store, next http.Handler) http.Handler {
	tokens := core.Must(core.New(store, core.MovingWindow(quota, time.Minute)))
	cfg := nethttp.Config{Settle: true, Cost: func(r *http.Request) (int, error) { return jobOf(r).prompt + jobOf(r).answer, nil }}
	limit := cfg.Limit(tokens, keyfuncs.ContextValue(customer{}), keyfuncs.Action("tokens"))
	settles := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, j := &counted{ResponseWriter: w}, jobOf(r)
		defer func() { // the proxy panics if the customer disconnects
			if err := nethttp.Settle(r, c.cost(j.prompt+j.answer, j.prompt)); err != nil {
				rarely.Printf("a request stays charged with its estimate: %v", err)
			}
		}()
		next.ServeHTTP(c, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j, err := read(r.URL.Path, http.MaxBytesReader(w, r.Body, longest))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			http.Error(w, "the request is too long", http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), jobKey{}, j))
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(j.body)), int64(len(j.body)), nil
		settles.ServeHTTP(w, r)
	})
}

// A counted response counts what the upstream sends, and reads the usage that it reports.
type counted struct {
	http.ResponseWriter
	status         int
	tokens         int    // an event of a stream is one
	other          int    // bytes that are not of a stream: four are a token
	kept           []byte // the beginning of the event that is being written, or of an answer that is not a stream
	in, out, total int    // as reported
	ended          bool   // the report is the last one
}

func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) streams() bool {
	return strings.HasPrefix(c.Header().Get("Content-Type"), "text/event-stream") && c.Header().Get("Content-Encoding") == ""
}

func (c *counted) Write(p []byte) (int, error) {
	if c.streams() {
		for rest := p; len(rest) > 0; {
			line, after, ends := bytes.Cut(rest, []byte("\n"))
			if c.keep(line); ends {
				c.event()
			}
			rest = after
		}
	} else {
		c.keep(p)
		c.other += len(p)
	}
	return c.ResponseWriter.Write(p)
}

func (c *counted) keep(p []byte) { c.kept = append(c.kept, p[:min(len(p), most-len(c.kept))]...) }

// event is called at the end of a line.
func (c *counted) event() {
	if data, ok := bytes.CutPrefix(c.kept, []byte("data:")); ok {
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			c.ended = true
		} else {
			c.tokens++
			c.report(data)
		}
	}
	c.kept = c.kept[:0]
}

// usage is what the usual APIs call it.
type usage struct {
	Total  int `json:"total_tokens"`
	In     int `json:"prompt_tokens"`
	Out    int `json:"completion_tokens"`
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
	Wrote  int `json:"cache_creation_input_tokens"`
	Read   int `json:"cache_read_input_tokens"`
}

// report reads the usage of an event or an answer, if it has one, and reports whether it is JSON.
func (c *counted) report(data []byte) bool {
	if !bytes.Contains(data, []byte(`"usage"`)) && !bytes.Contains(data, []byte(`"message_stop"`)) {
		return false
	}
	var event struct {
		Type     string
		Usage    usage
		Response struct{ Usage usage } // of /v1/responses
		Message  struct{ Usage usage } // of the first event of /v1/messages
	}
	if json.Unmarshal(data, &event) != nil {
		return false
	}
	for _, u := range []usage{event.Usage, event.Response.Usage, event.Message.Usage} {
		c.in, c.out, c.total = max(c.in, u.In+u.Input+u.Wrote+u.Read), max(c.out, u.Out+u.Output), max(c.total, u.Total)
	}
	ends := []string{"message_stop", "response.completed", "response.incomplete", "response.failed"}
	c.ended = c.ended || slices.Contains(ends, event.Type)
	return true
}

// cost is what a request has cost that was charged so much when it began.
func (c *counted) cost(charged, prompt int) int {
	if c.status >= 400 && c.status < 500 {
		return 0 // the upstream has refused to work; the limit on requests still counts it
	}
	if !c.streams() && c.report(c.kept) {
		c.ended = true
	}
	if used := max(c.total, c.in+c.out); c.ended && used > 0 {
		return used
	}
	return max(charged, prompt+c.tokens+c.other/4)
}

// Unwrap lets http.ResponseController flush.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
