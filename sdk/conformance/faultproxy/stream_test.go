// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
)

// before is a vendor behind a proxy.
func before(t *testing.T, vendor http.HandlerFunc) (*faultproxy.Proxy, string) {
	t.Helper()
	back := httptest.NewServer(vendor)
	t.Cleanup(back.Close)
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := faultproxy.New(u, nil)
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	return p, front.URL
}

func request(t *testing.T, address string, header http.Header) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// frame is one message of a stream of the Connect protocol.
func frame(flags byte, text string) string {
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))
	return string(head) + text
}

// stream is a vendor that sends frames as they come, and the end frame when the last one was asked for.
func stream(t *testing.T, kind string, frames <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		flush := http.NewResponseController(w)
		for {
			if err := flush.Flush(); err != nil {
				return
			}
			select {
			case f, more := <-frames:
				if !more {
					return
				}
				if _, err := io.WriteString(w, f); err != nil {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}
}

func TestStreamsComeAsTheyGo(t *testing.T) {
	frames := make(chan string)
	_, at := before(t, stream(t, "application/connect+proto", frames))
	resp, err := request(t, at, nil) //nolint:bodyclose // request closes it
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{frame(0, "one"), frame(0, ""), frame(2, "{}")} {
		frames <- f
		got := make([]byte, len(f))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != f {
			t.Fatalf("%q came as %q: %v", f, got, err)
		}
	}
	close(frames)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the end there is %q: %v", rest, err)
	}
}

func TestStreamsAreCut(t *testing.T) {
	one, big, end, trailers := frame(0, "one"), frame(1, strings.Repeat("x", 100_000)), frame(2, "{}"), frame(0x80, "grpc-status: 0")
	for name, x := range map[string]struct {
		kind, end string
		fault     faultproxy.Fault
		want      string
	}{
		"before the end frame":       {"application/connect+json", end, faultproxy.Fault{Kind: faultproxy.CutEnd}, one + big},
		"before the trailers":        {"application/grpc-web+proto", trailers, faultproxy.Fault{Kind: faultproxy.CutEnd}, one + big},
		"in the middle of a message": {"application/connect+json", end, faultproxy.Fault{Kind: faultproxy.CutBody, Bytes: 20}, (one + big)[:20]},
		"before the last byte":       {"text/plain", end, faultproxy.Fault{Kind: faultproxy.CutEnd}, (one + big + end)[:len(one+big+end)-1]},
		"after the last byte":        {"text/plain", end, faultproxy.Fault{Kind: faultproxy.CutBody, Bytes: 1 << 30}, one + big + end},
	} {
		t.Run(name, func(t *testing.T) {
			frames := make(chan string, 3)
			p, at := before(t, stream(t, x.kind, frames))
			p.Inject(x.fault)
			frames <- one
			frames <- big
			frames <- x.end
			close(frames)
			resp, err := request(t, at, nil) //nolint:bodyclose // request closes it
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if err == nil {
				t.Error("the client cannot tell that the stream was cut off")
			}
			if string(got) != x.want {
				t.Errorf("%d bytes came, want %d", len(got), len(x.want))
			}
		})
	}
}

// What the proxy answers in the vendor's place is the fault's, word for word.
func TestAnswersOfTheVendor(t *testing.T) {
	seen := 0
	p, at := before(t, func(w http.ResponseWriter, _ *http.Request) {
		seen++
		w.Header().Set("X-Vendor", "yes")
		w.WriteHeader(http.StatusCreated)
	})
	get := func(header http.Header) (int, string, http.Header) {
		t.Helper()
		resp, err := request(t, at+"/sandboxes/x", header) //nolint:bodyclose // request closes it
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	p.Inject(faultproxy.Fault{Kind: faultproxy.TooMany, Times: 1})
	if status, _, h := get(nil); status != 429 || h.Values("Retry-After") != nil || seen != 0 {
		t.Errorf("429 without Retry-After: %d, %v", status, h)
	}
	p.Inject(faultproxy.Fault{
		Kind: faultproxy.LateAnswer, Status: http.StatusGatewayTimeout, Times: 1, Body: `{"code":504}`, Header: http.Header{"Content-Type": {"application/json"}},
	})
	if status, body, h := get(nil); status != 504 || body != `{"code":504}` || h.Get("Content-Type") != "application/json" || h.Get("X-Vendor") != "" || seen != 1 {
		t.Errorf("504 after the vendor had done it: %d, %q, %v; the vendor saw %d", status, body, h, seen)
	}
	// A token that was rotated: the old one is refused from now on.
	p.Inject(faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusUnauthorized, Match: func(r *http.Request) bool {
		return r.Header.Get("X-Token") == "old"
	}})
	for token, want := range map[string]int{"old": http.StatusUnauthorized, "new": http.StatusCreated} {
		if status, _, _ := get(http.Header{"X-Token": {token}}); status != want {
			t.Errorf("the %s token gets %d, want %d", token, status, want)
		}
	}
}

// A sandbox ends in the middle: its streams break, and what comes after is told so. Another one goes on.
func TestSever(t *testing.T) {
	frames := make(chan string, 1)
	p, at := before(t, stream(t, "application/connect+json", frames))
	frames <- frame(0, "x")
	mine, err := request(t, at+"/sandboxes/mine", nil) //nolint:bodyclose // request closes it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(mine.Body, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	other, err := request(t, at+"/sandboxes/other", nil) //nolint:bodyclose // request closes it
	if err != nil {
		t.Fatal(err)
	}
	p.Inject(faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusNotFound, Path: "/sandboxes/mine"})
	if n := p.Sever(func(r *http.Request) bool { return r.URL.Path == "/sandboxes/mine" }); n != 1 {
		t.Errorf("%d connections were severed", n)
	}
	if rest, err := io.ReadAll(mine.Body); err == nil {
		t.Errorf("the stream of a sandbox that ended is whole: %q", rest)
	}
	if again, err := request(t, at+"/sandboxes/mine", nil); err != nil || again.StatusCode != http.StatusNotFound { //nolint:bodyclose // request closes it
		t.Errorf("afterwards: %v, %v", again, err)
	}
	frames <- frame(2, "y")
	close(frames)
	if b, err := io.ReadAll(other.Body); err != nil || string(b) != frame(2, "y") {
		t.Errorf("the other sandbox's stream: %q, %v", b, err)
	}
}

// A request that has no answer yet can be severed too, and its client sees no status.
func TestSeverBeforeTheAnswer(t *testing.T) {
	reached := make(chan struct{})
	p, at := before(t, func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	})
	done := make(chan error, 1)
	go func() {
		_, err := request(t, at, nil) //nolint:bodyclose // there is no body
		done <- err
	}()
	<-reached
	if n := p.Sever(nil); n != 1 {
		t.Errorf("%d connections were severed", n)
	}
	if err := <-done; err == nil {
		t.Error("there was an answer")
	}
}

// conversation is a WebSocket whose server gives back what it gets, until it is told to stop.
func conversation(t *testing.T) (*faultproxy.Proxy, func() *websocket.Conn) {
	t.Helper()
	p, at := before(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow() // it is closed
		c.SetReadLimit(-1)
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if string(b) == "stop" {
				c.Close(websocket.StatusNormalClosure, "as asked") // the client may be gone
				return
			}
			if err := c.Write(r.Context(), kind, b); err != nil {
				return
			}
		}
	})
	return p, func() *websocket.Conn {
		c, _, err := websocket.Dial(t.Context(), strings.Replace(at, "http", "ws", 1), nil) //nolint:bodyclose // the package says that it need not be closed
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseNow() })
		c.SetReadLimit(-1)
		return c
	}
}

func say(t *testing.T, c *websocket.Conn, text string) ([]byte, error) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, b, err := c.Read(t.Context())
	return b, err
}

func TestWebSockets(t *testing.T) {
	p, dial := conversation(t)
	long, huge := strings.Repeat("l", 5000), strings.Repeat("h", 100_000)
	for name, x := range map[string]struct {
		fault  faultproxy.Fault
		status websocket.StatusCode // with which the server's stop arrives; -1 = not at all
	}{
		"through": {status: websocket.StatusNormalClosure},
		"cut end": {fault: faultproxy.Fault{Kind: faultproxy.CutEnd, Times: 1}, status: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if x.fault.Kind != 0 {
				p.Inject(x.fault)
			}
			c := dial()
			for _, text := range []string{"", "short", long, huge} {
				if b, err := say(t, c, text); err != nil || string(b) != text {
					t.Fatalf("%d bytes came back as %d: %v", len(text), len(b), err)
				}
			}
			if b, err := say(t, c, "stop"); websocket.CloseStatus(err) != x.status {
				t.Errorf("the end: %v, %q", err, b)
			}
		})
	}
	t.Run("cut", func(t *testing.T) {
		p.Inject(faultproxy.Fault{Kind: faultproxy.CutBody, Bytes: 10, Times: 1}) // 2 of a header, and 5
		c := dial()
		if b, err := say(t, c, "short"); err != nil || string(b) != "short" {
			t.Fatalf("the first: %q, %v", b, err)
		}
		if b, err := say(t, c, "another"); err == nil {
			t.Errorf("past the tenth byte came %q", b)
		}
	})
	t.Run("severed", func(t *testing.T) {
		c := dial()
		if _, err := say(t, c, "short"); err != nil {
			t.Fatal(err)
		}
		if n := p.Sever(nil); n != 1 {
			t.Errorf("%d connections were severed", n)
		}
		if _, _, err := c.Read(t.Context()); err == nil {
			t.Error("the connection lives")
		}
	})
}
