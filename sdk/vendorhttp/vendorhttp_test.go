// SPDX-License-Identifier: Apache-2.0

package vendorhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

const key = "key-0123456789abcdef"

// vendor is a server that counts what it gets, and a client whose waits take no time but are noted.
type vendor struct {
	*Client
	mu    sync.Mutex
	seen  []string
	waits []time.Duration
	tries []Attempt
}

func (v *vendor) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.seen)
}

func serveVendor(t *testing.T, h http.HandlerFunc, change func(*Options)) *vendor {
	t.Helper()
	v := &vendor{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		v.seen = append(v.seen, r.Method+" "+r.URL.RequestURI())
		v.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(s.Close)
	opts := Options{
		Base: s.URL + "/v1", Credentials: http.Header{"X-Api-Key": {key}}, Attempts: 3,
		Observe: func(a Attempt) { v.tries = append(v.tries, a) },
	}
	if change != nil {
		change(&opts)
	}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	c.pause = func(_ context.Context, d time.Duration) error {
		v.waits = append(v.waits, d)
		return nil
	}
	v.Client = c
	return v
}

func answers(codes ...int) http.HandlerFunc {
	var n atomic.Int32
	return func(w http.ResponseWriter, _ *http.Request) {
		i := min(int(n.Add(1))-1, len(codes)-1)
		w.Header().Set("X-Request-Id", fmt.Sprintf("req-%d", i+1))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(codes[i])
		fmt.Fprintf(w, `{"message": "answer %d", "n": %d}`, i+1, i+1)
	}
}

func typed(t *testing.T, err error) *errs.Error {
	t.Helper()
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		t.Fatalf("not an *errs.Error: %v", err)
	}
	if strings.Contains(fmt.Sprintf("%+v %+v", e, e.Vendor), key) {
		t.Errorf("the credential shows: %+v", e)
	}
	return e
}

func TestJSONThereAndBack(t *testing.T) {
	v := serveVendor(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]string{"key": r.Header.Get("X-Api-Key"), "agent": r.UserAgent(), "body": string(body), "uri": r.RequestURI})
	}, func(o *Options) { o.UserAgent = "berth-test" })
	var got map[string]string
	_, err := v.Do(t.Context(), &Request{Method: "POST", Path: "/things/a%2Fb", Query: url.Values{"q": {"x y"}}, JSON: map[string]int{"n": 1}}, &got)
	if err != nil || got["key"] != key || got["agent"] != "berth-test" || got["body"] != `{"n":1}` || got["uri"] != "/v1/things/a%2Fb?q=x+y" {
		t.Errorf("%v, %v", got, err)
	}
	var raw []byte
	if _, err := v.Do(t.Context(), &Request{}, &raw); err != nil || !bytes.HasPrefix(raw, []byte("{")) {
		t.Errorf("%q, %v", raw, err)
	}
}

// TestWhatIsRepeated is the rule of the package comment, status by status.
func TestWhatIsRepeated(t *testing.T) {
	for _, x := range []struct {
		method string
		status int
		times  int
		code   errs.Code
		maybe  bool
	}{
		{"GET", 500, 3, errs.VendorFailed, false},
		{"GET", 504, 3, errs.VendorFailed, false},
		{"GET", 501, 1, errs.VendorFailed, false},
		{"GET", 404, 1, errs.InvalidArgument, false},
		{"GET", 401, 1, errs.AuthFailed, false},
		{"DELETE", 502, 3, errs.VendorFailed, true},
		{"POST", 500, 1, errs.VendorFailed, true},
		{"POST", 503, 1, errs.VendorFailed, true},
		{"POST", 429, 3, errs.RateLimited, false},
		{"POST", 403, 1, errs.PermissionDenied, false},
		{"POST", 402, 1, errs.QuotaExceeded, false},
		{"POST", 507, 1, errs.NoSpace, false},
	} {
		v := serveVendor(t, answers(x.status), nil)
		_, err := v.Do(t.Context(), &Request{Op: "make", Method: x.method, Path: "/x"}, nil)
		e := typed(t, err)
		if v.count() != x.times || e.Code != x.code || e.MaybeApplied != x.maybe || e.Op != "make" {
			t.Errorf("%s %d: %d times, %s, maybe applied %v: %v", x.method, x.status, v.count(), e.Code, e.MaybeApplied, e)
		}
		if e.Vendor == nil || e.Vendor.HTTPStatus != x.status || e.Vendor.RequestID == "" || !strings.HasPrefix(e.Vendor.Message, "answer ") {
			t.Errorf("%s %d: the vendor's words: %+v", x.method, x.status, e.Vendor)
		}
		if len(v.tries) != x.times || v.tries[0].Status != x.status || v.tries[len(v.tries)-1].Wait != 0 {
			t.Errorf("%s %d: attempts %+v", x.method, x.status, v.tries)
		}
	}
}

func TestRepeatedUntilItWorks(t *testing.T) {
	v := serveVendor(t, answers(503, 429, 200), nil)
	var got struct{ N int }
	if _, err := v.Do(t.Context(), &Request{Method: "POST", Path: "/x", Repeatable: true, JSON: 1}, &got); err != nil || got.N != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if len(v.waits) != 2 || v.waits[0] > firstWait || v.waits[1] > 2*firstWait {
		t.Errorf("waits %v", v.waits)
	}
	v = serveVendor(t, answers(500, 200), nil)
	if _, err := v.Do(t.Context(), &Request{Method: "PUT", NotRepeatable: true}, nil); err == nil || v.count() != 1 {
		t.Errorf("%d times, %v", v.count(), err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 0.5 ": 500 * time.Millisecond, "-3": 0, "soon": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q is %s, not %s", text, got, want)
		}
	}
	says := func(after string) *vendor {
		return serveVendor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
		}, nil)
	}
	v := says("2")
	if _, err := v.Do(t.Context(), &Request{}, nil); typed(t, err).RetryAfter != 2*time.Second || len(v.waits) != 2 || v.waits[0] < 2*time.Second {
		t.Errorf("waits %v, %v", v.waits, err)
	}
	v = says("3600")
	if _, err := v.Do(t.Context(), &Request{}, nil); typed(t, err).RetryAfter != time.Hour || v.count() != 1 {
		t.Errorf("%d times, %v", v.count(), err)
	}
}

// cut breaks the connection when it has read the request.
func cut(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func TestBrokenConnection(t *testing.T) {
	v := serveVendor(t, cut, nil)
	_, err := v.Do(t.Context(), &Request{Method: "POST", JSON: 1, Query: url.Values{"token": {key}}}, nil)
	if e := typed(t, err); v.count() != 1 || e.Code != errs.VendorFailed || !e.MaybeApplied {
		t.Errorf("%d times, %+v", v.count(), e)
	}
	v = serveVendor(t, cut, nil)
	_, err = v.Do(t.Context(), &Request{Method: "POST", Repeatable: true, JSON: 1}, nil)
	if e := typed(t, err); v.count() != 3 || !e.MaybeApplied {
		t.Errorf("%d times, %+v", v.count(), e)
	}
}

func TestBodyCutOff(t *testing.T) {
	v := serveVendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"n":`)
		panic(http.ErrAbortHandler)
	}, nil)
	var out any
	_, err := v.Do(t.Context(), &Request{}, &out)
	if e := typed(t, err); v.count() != 3 || e.Code != errs.VendorFailed {
		t.Errorf("%d times, %+v", v.count(), e)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Base: "http://" + l.Addr().String(), Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	waits := 0
	c.pause = func(context.Context, time.Duration) error { waits++; return nil }
	_, err = c.Do(t.Context(), &Request{Method: "POST", JSON: 1}, nil)
	if e := typed(t, err); e.Code != errs.VendorFailed || e.RetryClass() != errs.RetrySafe || e.MaybeApplied || waits != 1 {
		t.Errorf("%d waits, %+v", waits, e)
	}
}

func TestCertificate(t *testing.T) {
	s := httptest.NewTLSServer(answers(200))
	defer s.Close()
	s.Config.ErrorLog = nil
	c, err := New(Options{Base: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), &Request{}, nil)
	if e := typed(t, err); e.RetryClass() != errs.RetryNever || !strings.Contains(e.Hint, "certificate") {
		t.Errorf("%+v", e)
	}
}

// hang answers nothing until the client is gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestDeadlines(t *testing.T) {
	v := serveVendor(t, hang, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	_, err := v.Do(t.Context(), &Request{Method: "POST", JSON: 1}, nil)
	if e := typed(t, err); v.count() != 1 || e.Code != errs.VendorFailed || !e.MaybeApplied || !strings.Contains(e.Message, "in time") {
		t.Errorf("%d times, %+v", v.count(), e)
	}
	_, err = v.Stream(t.Context(), &Request{})
	if e := typed(t, err); e.Code != errs.VendorFailed || v.count() != 4 {
		t.Errorf("%d times, %+v", v.count(), e)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	v = serveVendor(t, func(w http.ResponseWriter, r *http.Request) { cancel(enough); hang(w, r) }, nil)
	_, err = v.Do(ctx, &Request{}, nil)
	if e := typed(t, err); e.Code != errs.Canceled || !errors.Is(err, enough) || v.count() != 1 {
		t.Errorf("%d times, %+v", v.count(), e)
	}
}

// TestStream: the time of an attempt does not bound the body, and closing it ends the request.
func TestStream(t *testing.T) {
	more, gone := make(chan bool), make(chan bool)
	v := serveVendor(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "late")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}, nil)
	resp, err := v.Stream(t.Context(), &Request{}) // the attempt, and its context, is over
	if err != nil {
		t.Fatal(err)
	}
	close(more)
	b := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "late" {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
	<-gone
}

func TestBodies(t *testing.T) {
	var n atomic.Int32
	var got atomic.Value
	h := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got.Store(string(b))
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	v := serveVendor(t, h, nil)
	open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("payload")), nil }
	if _, err := v.Do(t.Context(), &Request{Method: "PUT", Body: open}, nil); err != nil || v.count() != 2 || got.Load() != "payload" {
		t.Errorf("%d times, %v, %q", v.count(), err, got.Load())
	}
	n.Store(0)
	v = serveVendor(t, h, nil)
	if _, err := v.Do(t.Context(), &Request{Method: "PUT", Body: open, Length: 7, Once: true}, nil); err == nil || v.count() != 1 {
		t.Errorf("a body that opens once was sent %d times: %v", v.count(), err)
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, x := range map[string]struct {
		body string
		want string
	}{
		"a page":    {"<html>please log in</html>", "not the JSON"},
		"too large": {`"` + strings.Repeat("x", 2000) + `"`, "larger than"},
	} {
		v := serveVendor(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, x.body) }, func(o *Options) { o.MaxBody = 1000 })
		var out any
		_, err := v.Do(t.Context(), &Request{Method: "POST"}, &out)
		if e := typed(t, err); !strings.Contains(e.Message, x.want) || e.Hint == "" || !e.MaybeApplied {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer other.Close()
	v := serveVendor(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/?secret=1", http.StatusTemporaryRedirect)
	}, nil)
	_, err := v.Do(t.Context(), &Request{}, nil)
	if e := typed(t, err); e.Code != errs.VendorFailed || !strings.Contains(e.Hint, other.URL) || strings.Contains(e.Hint, "secret") || v.count() != 1 {
		t.Errorf("%+v", e)
	}
}

func TestClassify(t *testing.T) {
	v := serveVendor(t, answers(409), func(o *Options) {
		o.Classify = func(a Answer) *errs.Error {
			if a.Status == 409 && bytes.Contains(a.Body, []byte("answer")) {
				return &errs.Error{Code: errs.SandboxNotReady, Retry: errs.RetrySafe, Vendor: &errs.Vendor{Code: "busy"}}
			}
			return nil
		}
	})
	_, err := v.Do(t.Context(), &Request{Method: "POST"}, nil)
	if e := typed(t, err); v.count() != 3 || e.Code != errs.SandboxNotReady || e.Vendor.Code != "busy" || e.Vendor.HTTPStatus != 409 {
		t.Errorf("%d times, %+v", v.count(), e)
	}
}

func TestCredentialsAreHidden(t *testing.T) {
	v := serveVendor(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such key: "+r.Header.Get("X-Api-Key")+" / tok-tok-tok", http.StatusUnauthorized)
	}, func(o *Options) { o.Credentials.Set("Authorization", "Bearer "+key) })
	v.Hide("tok-tok-tok")
	_, err := v.Do(t.Context(), &Request{}, nil)
	if e := typed(t, err); strings.Contains(e.Error()+e.Vendor.Message, "tok-tok") || !strings.Contains(e.Message, "no such key") {
		t.Errorf("%+v %+v", e, e.Vendor)
	}
}

func TestBadBase(t *testing.T) {
	for _, base := range []string{"", "api.example.com", "ftp://x", "http://", "%zz"} {
		if _, err := New(Options{Base: base}); !errors.Is(err, errs.ConfigInvalid) {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestMessage(t *testing.T) {
	for body, want := range map[string]string{
		`{"code": 404, "message": "no such box"}`: "no such box",
		`{"error": {"message": "inner"}}`:         "inner",
		`{"error": "plain"}`:                      "plain",
		`{"other": 1}`:                            `{"other": 1}`,
		"<html>":                                  "",
		"words\n":                                 "words",
		"\xff":                                    "\uFFFD",
	} {
		if got := Message([]byte(body)); got != want {
			t.Errorf("%s: %q, not %q", body, got, want)
		}
	}
}
