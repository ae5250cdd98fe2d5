// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fakee2b

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// templates are the names that a sandbox can be made from.
var templates = []string{"base", "code-interpreter-v1"}

func (f *Fake) routes() {
	f.mux.HandleFunc("POST /sandboxes", f.create)
	f.mux.HandleFunc("GET /v2/sandboxes", f.list)
	f.mux.HandleFunc("GET /templates", func(w http.ResponseWriter, _ *http.Request) {
		var out []map[string]any
		for _, t := range templates {
			out = append(out, map[string]any{"templateID": t, "aliases": []string{t}, "names": []string{t}, "public": true, "cpuCount": 2, "memoryMB": 512})
		}
		answer(w, http.StatusOK, out)
	})
	f.mux.HandleFunc("DELETE /templates/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !f.dropSnapshot(r.PathValue("id")) {
			refuse(w, http.StatusNotFound, "", fmt.Sprintf("template '%s' not found", r.PathValue("id")))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	f.mux.HandleFunc("GET /snapshots", f.listSnapshots)
	of := func(pattern string, h func(http.ResponseWriter, *http.Request, *box)) {
		f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			id, _, _ := strings.Cut(r.PathValue("id"), "-")
			b := f.find(id)
			if b == nil {
				refuse(w, http.StatusNotFound, "", fmt.Sprintf("Sandbox \"%s\" doesn't exist or you don't have access to it", id))
				return
			}
			h(w, r, b)
		})
	}
	of("GET /sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request, b *box) { answer(w, http.StatusOK, b.detail(true)) })
	of("DELETE /sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request, b *box) {
		b.kill()
		w.WriteHeader(http.StatusNoContent)
	})
	of("POST /sandboxes/{id}/connect", f.connect)
	of("POST /sandboxes/{id}/pause", f.pause)
	of("POST /sandboxes/{id}/timeout", f.timeout)
	of("POST /sandboxes/{id}/refreshes", f.refresh)
	of("PUT /sandboxes/{id}/network", f.network)
	of("POST /sandboxes/{id}/snapshots", f.snapshot)
	of("GET /sandboxes/{id}/metrics", func(w http.ResponseWriter, _ *http.Request, _ *box) {
		now := time.Now()
		answer(w, http.StatusOK, []map[string]any{{
			"timestamp": now, "timestampUnix": now.Unix(), "cpuCount": 2, "cpuUsedPct": 1.5, "memUsed": 1 << 20, "memTotal": 512 << 20,
			"memCache": 0, "diskUsed": 1 << 20, "diskTotal": 10 << 30,
		}})
	})
}

// request is the body of a create.
type request struct {
	TemplateID          string `json:"templateID"`
	Timeout             *int   `json:"timeout"`
	AutoPause           bool   `json:"autoPause"`
	AutoPauseMemory     *bool  `json:"autoPauseMemory"`
	AutoResume          *struct{ Enabled bool }
	Secure              bool              `json:"secure"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *networkRules     `json:"network"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	VolumeMounts        []any             `json:"volumeMounts"`
	IAM                 *struct {
		Tokens map[string]struct{ Audience, TokenType string }
	}

	body []byte // as it came
}

type networkRules struct {
	AllowPublicTraffic *bool    `json:"allowPublicTraffic"`
	AllowOut           []string `json:"allowOut"`
	DenyOut            []string `json:"denyOut"`
	MaskRequestHost    string   `json:"maskRequestHost"`
	EgressProxy        any      `json:"egressProxy"`
	Rules              map[string][]struct {
		Transform struct{ Headers map[string]string }
	}
}

// wrong says what the vendor has against the rules.
func (n *networkRules) wrong() string {
	if n == nil {
		return ""
	}
	address := func(s string) bool {
		_, e1 := netip.ParseAddr(s)
		_, e2 := netip.ParsePrefix(s)
		return e1 == nil || e2 == nil
	}
	if len(n.Rules) > 10 {
		return "network rules can have at most 10 domains"
	}
	for domain, rules := range n.Rules {
		if len(rules) != 1 || len(rules[0].Transform.Headers) > 20 {
			return "a domain can have one transform, with at most 20 headers: " + domain
		}
		for name, value := range rules[0].Transform.Headers {
			if len(name) > 64 || len(value) > 2048 {
				return "a header's name or value is too long: " + domain
			}
		}
	}
	for _, s := range n.DenyOut {
		if !address(s) {
			return fmt.Sprintf("invalid denied CIDR %s", s)
		}
	}
	for _, s := range n.AllowOut {
		if !address(s) && !slices.Contains(n.DenyOut, "0.0.0.0/0") {
			return "When specifying allowed domains in allow out, you must include '0.0.0.0/0' in deny out to block all other traffic."
		}
	}
	return ""
}

func decode(w http.ResponseWriter, r *http.Request, out any) bool {
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(out)
	if err != nil {
		refuse(w, http.StatusBadRequest, "", "Error when parsing request: "+err.Error())
	}
	return err == nil
}

// ttlWrong refuses a time that is too long.
func ttlWrong(w http.ResponseWriter, s int) bool {
	switch {
	case s < 0:
		refuse(w, http.StatusBadRequest, "", "Timeout cannot be negative")
	case s > MaxTimeout:
		refuse(w, http.StatusBadRequest, "", fmt.Sprintf("Timeout cannot be greater than %d hours", MaxTimeout/3600))
	default:
		return false
	}
	return true
}

func (f *Fake) create(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	if !decode(w, r, &raw) {
		return
	}
	req := request{body: raw}
	if err := json.Unmarshal(raw, &req); err != nil {
		refuse(w, http.StatusBadRequest, "", "Error when parsing request: "+err.Error())
		return
	}
	timeout := 15
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	if ttlWrong(w, timeout) {
		return
	}
	if text := req.Network.wrong(); text != "" {
		refuse(w, http.StatusBadRequest, "", text)
		return
	}
	switch {
	case req.AutoPauseMemory != nil && !req.AutoPause, req.AutoPauseMemory != nil && !*req.AutoPauseMemory && req.AutoResume != nil && req.AutoResume.Enabled:
		refuse(w, http.StatusBadRequest, "", "autoPauseMemory needs autoPause and goes without autoResume")
		return
	case req.Network != nil && req.Network.EgressProxy != nil:
		refuse(w, http.StatusForbidden, "", "egress proxy is not enabled for this team")
		return
	case req.IAM != nil && len(req.IAM.Tokens) > 5:
		refuse(w, http.StatusBadRequest, "", "at most 5 identity tokens are allowed")
		return
	case len(req.VolumeMounts) > 0:
		refuse(w, http.StatusBadRequest, "", "use of volumes is not enabled")
		return
	}
	f.mu.Lock()
	from := f.snapshots[req.TemplateID]
	f.mu.Unlock()
	if from == nil && !slices.Contains(templates, req.TemplateID) {
		refuse(w, http.StatusNotFound, "", fmt.Sprintf("template '%s' not found", req.TemplateID))
		return
	}
	b, err := f.start(&req, time.Duration(timeout)*time.Second, from)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "sandbox_create_failed", err.Error())
		return
	}
	answer(w, http.StatusCreated, b.detail(true))
}

func (f *Fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	want, err := url.ParseQuery(q.Get("metadata"))
	limit := 100
	if s := q.Get("limit"); s != "" && err == nil {
		limit, err = strconv.Atoi(s)
	}
	if err != nil || limit < 1 || limit > 100 {
		refuse(w, http.StatusBadRequest, "", "Invalid query")
		return
	}
	states := strings.Split(cmp.Or(q.Get("state"), "running,paused"), ",")
	f.mu.Lock()
	all := slices.SortedFunc(maps.Values(f.boxes), func(a, b *box) int { return cmp.Compare(a.id, b.id) })
	f.mu.Unlock()
	out := []map[string]any{}
	for _, b := range all {
		if after := q.Get("nextToken"); after != "" && b.id <= after {
			continue
		}
		fits := true
		for k := range want {
			v, ok := b.req.Metadata[k]
			fits = fits && ok && v == want.Get(k)
		}
		d := b.detail(false)
		if !fits || !slices.Contains(states, d["state"].(string)) { //nolint:errcheck // detail always has it
			continue
		}
		if len(out) == limit {
			w.Header().Set("X-Next-Token", out[limit-1]["sandboxID"].(string)) //nolint:errcheck // detail always has it
			break
		}
		out = append(out, d)
	}
	answer(w, http.StatusOK, out)
}

func (f *Fake) connect(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct{ Timeout *int }
	if !decode(w, r, &body) {
		return
	}
	if body.Timeout == nil {
		refuse(w, http.StatusBadRequest, "", "Error when parsing request: timeout is required")
		return
	}
	if ttlWrong(w, *body.Timeout) {
		return
	}
	resumed, err := b.resume(time.Duration(*body.Timeout) * time.Second)
	if err != nil {
		refuse(w, http.StatusConflict, "", err.Error())
		return
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	answer(w, status, b.detail(true))
}

func (f *Fake) pause(w http.ResponseWriter, r *http.Request, b *box) {
	body := struct{ Memory *bool }{}
	if b, err := io.ReadAll(io.LimitReader(r.Body, 1<<16)); err == nil && len(b) > 0 && json.Unmarshal(b, &body) != nil {
		refuse(w, http.StatusBadRequest, "", "Error when parsing request")
		return
	}
	if err := b.pause(body.Memory == nil || *body.Memory); err != nil {
		refuse(w, http.StatusConflict, "", err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fake) timeout(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct{ Timeout int }
	if !decode(w, r, &body) || ttlWrong(w, body.Timeout) {
		return
	}
	if !b.setEnd(time.Duration(body.Timeout)*time.Second, false) {
		refuse(w, http.StatusNotFound, "", "Sandbox is not running")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fake) refresh(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct{ Duration int }
	if !decode(w, r, &body) {
		return
	}
	if body.Duration > 3600 {
		refuse(w, http.StatusBadRequest, "", "duration is too long")
		return
	}
	b.setEnd(time.Duration(max(body.Duration, 15))*time.Second, true)
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fake) network(w http.ResponseWriter, r *http.Request, b *box) {
	var rules networkRules
	if !decode(w, r, &rules) {
		return
	}
	if text := rules.wrong(); text != "" {
		refuse(w, http.StatusBadRequest, "", text)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fake) snapshot(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct{ Name string }
	if !decode(w, r, &body) {
		return
	}
	s := &snapshot{id: cmp.Or(body.Name, newID()[:12]) + ":" + newID()[:8], sandboxID: b.id, created: time.Now()}
	s.dir = f.snapshotDir(s.id)
	if err := b.copyTo(s.dir); err != nil {
		refuse(w, http.StatusConflict, "", err.Error())
		return
	}
	f.mu.Lock()
	f.snapshots[s.id] = s
	f.mu.Unlock()
	answer(w, http.StatusCreated, map[string]any{"snapshotID": s.id, "names": []string{s.id}})
}

func (f *Fake) listSnapshots(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	all := slices.SortedFunc(maps.Values(f.snapshots), func(a, b *snapshot) int { return cmp.Compare(a.id, b.id) })
	f.mu.Unlock()
	out := []map[string]any{}
	for _, s := range all {
		if of := r.URL.Query().Get("sandboxID"); of == "" || of == s.sandboxID {
			out = append(out, map[string]any{"snapshotID": s.id, "names": []string{s.id}})
		}
	}
	answer(w, http.StatusOK, out)
}
