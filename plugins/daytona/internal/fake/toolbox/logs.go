// SPDX-License-Identifier: Apache-2.0

//go:build linux

package toolbox

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// firstSplit is the first version of the vendor's clients that gets marks.
const firstSplit = 167

// linger is how long a log's socket stays open after the command's end.
const linger = time.Second

const versionProtocol = "X-Daytona-SDK-Version~"

// knowsMarks says whether the client says that it is new enough.
func knowsMarks(r *http.Request) bool {
	v := r.Header.Get("X-Daytona-SDK-Version")
	for p := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if s, ok := strings.CutPrefix(strings.TrimSpace(p), versionProtocol); ok && v == "" {
			v = s
		}
	}
	parts := strings.Split(strings.TrimPrefix(v, "v"), ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > 0 || minor >= firstSplit)
}

// plain takes the marks off.
func plain(log []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(log, []byte(markOut), nil), []byte(markErr), nil)
}

// split sorts lines by their marks.
func split(log []byte) (out, err []byte) {
	for line := range bytes.Lines(log) {
		if l, ok := bytes.CutPrefix(line, []byte(markErr)); ok {
			err = append(err, l...)
		} else {
			out = append(out, bytes.TrimPrefix(line, []byte(markOut))...)
		}
	}
	return out, err
}

func (t *Toolbox) commandLogs(w http.ResponseWriter, r *http.Request) {
	s, c, err := t.command(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	form := plain
	if knowsMarks(r) {
		form = func(b []byte) []byte { return b }
	}
	follow := r.URL.Query().Get("follow") == "true"
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		c.mu.Lock()
		log := bytes.Clone(c.log)
		c.mu.Unlock()
		if knowsMarks(r) {
			o, e := split(log)
			answer(w, 200, map[string]any{"output": string(log), "stdout": string(o), "stderr": string(e)})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(plain(log)) // the client may be gone
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled, Subprotocols: subprotocols(r),
	})
	if err != nil {
		return
	}
	defer conn.CloseNow() //nolint:errcheck // over either way
	ctx := conn.CloseRead(r.Context())
	for sent := 0; ; {
		c.mu.Lock()
		log, exit, more := c.log, c.exit, c.more
		c.mu.Unlock()
		if len(log) > sent {
			if conn.Write(ctx, websocket.MessageBinary, form(log[sent:])) != nil {
				return
			}
			sent = len(log)
			continue
		}
		if exit != nil && follow {
			select {
			case <-time.After(linger):
			case <-ctx.Done():
				return
			}
		}
		if exit != nil || !follow {
			_ = conn.Close(websocket.StatusNormalClosure, "") // the client may be gone
			return
		}
		select {
		case <-more:
		case <-s.deleted:
			_ = conn.Close(websocket.StatusNormalClosure, "") // the same
			return
		case <-ctx.Done():
			return
		}
	}
}

func subprotocols(r *http.Request) []string {
	var all []string
	for p := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if p = strings.TrimSpace(p); strings.HasPrefix(p, versionProtocol) {
			all = append(all, p)
		}
	}
	return all
}
