// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// CreateRequest says what sandbox is wanted.
type CreateRequest struct {
	TemplateID          string            `json:"templateID"` // an id, a name, NAMESPACE/NAME:TAG, or a snapshot's id
	Timeout             int               `json:"timeout"`    // seconds until its end, from now
	AutoPause           bool              `json:"autoPause"`  // at its end it is paused and not removed
	AutoPauseMemory     *bool             `json:"autoPauseMemory,omitempty"`
	AutoResume          *AutoResume       `json:"autoResume,omitempty"`
	Secure              bool              `json:"secure"` // what is inside is reached with a token only
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Network             *Network          `json:"network,omitempty"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"` // of every process
	VolumeMounts        []VolumeMount     `json:"volumeMounts,omitempty"`
	Identity            *Identity         `json:"iam,omitempty"`
}

// AutoResume says whether traffic wakes a paused sandbox.
type AutoResume struct {
	Enabled bool `json:"enabled"`
}

// Network bounds what a sandbox reaches, and who reaches it.
type Network struct {
	AllowPublicTraffic *bool        `json:"allowPublicTraffic,omitempty"`
	AllowOut           []string     `json:"allowOut,omitempty"` // addresses; names only where DenyOut holds 0.0.0.0/0
	DenyOut            []string     `json:"denyOut,omitempty"`
	MaskRequestHost    string       `json:"maskRequestHost,omitempty"`
	EgressProxy        *EgressProxy `json:"egressProxy,omitempty"`
	// Rules are of requests to domains, 10 at most; each has one rule.
	Rules map[string][]Rule `json:"rules,omitempty"`
}

// Rule changes requests on their way out.
type Rule struct {
	Transform Transform `json:"transform"`
}

// Transform puts headers into requests, 20 at most. The sandbox does not see them.
type Transform struct {
	Headers map[string]string `json:"headers"`
}

// Identity makes tokens by which others know the sandbox, 5 at most, by name.
type Identity struct {
	Tokens map[string]IdentityToken `json:"tokens"`
}

// IdentityToken is a token for an audience. Its type is JWT-SVID.
type IdentityToken struct {
	Audience string `json:"audience"`
	Type     string `json:"tokenType"`
}

// EgressProxy is what a sandbox's traffic goes through.
type EgressProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// VolumeMount is a volume of the vendor's.
type VolumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// The states of a sandbox.
const (
	StateRunning = "running"
	StatePaused  = "paused"
)

// Info is what the control plane says of a sandbox.
type Info struct {
	SandboxID          string            `json:"sandboxID"`
	TemplateID         string            `json:"templateID"`
	Alias              string            `json:"alias"`
	State              string            `json:"state"`
	StartedAt          time.Time         `json:"startedAt"`
	EndAt              time.Time         `json:"endAt"`
	CPUCount           int               `json:"cpuCount"`
	MemoryMB           int               `json:"memoryMB"`
	DiskSizeMB         int               `json:"diskSizeMB"`
	Metadata           map[string]string `json:"metadata"`
	EnvdVersion        string            `json:"envdVersion"`
	EnvdAccessToken    string            `json:"envdAccessToken"`
	TrafficAccessToken string            `json:"trafficAccessToken"`
	Domain             string            `json:"domain"`
}

// Create makes a sandbox and returns when its daemon answers. A failure with MaybeApplied may have made one: look for it by
// its metadata.
func (c *Client) Create(ctx context.Context, r *CreateRequest) (*Sandbox, error) {
	var info Info
	if err := c.post(ctx, "create", "/sandboxes", false, r, &info); err != nil {
		return nil, err
	}
	return c.Open(&info)
}

// Get looks at a sandbox and changes nothing.
func (c *Client) Get(ctx context.Context, id string) (*Info, error) {
	var info Info
	_, err := c.get(ctx, "inspect", "/sandboxes/"+segment(id), nil, &info)
	return &info, err
}

// Connect wakes a paused sandbox, and makes a running one live at least timeout longer: it never ends sooner for it.
func (c *Client) Connect(ctx context.Context, id string, timeout time.Duration) (*Sandbox, error) {
	var info Info
	if err := c.post(ctx, "resume", "/sandboxes/"+segment(id)+"/connect", true, map[string]int{"timeout": seconds(timeout)}, &info); err != nil {
		return nil, err
	}
	return c.Open(&info)
}

// ListOptions select sandboxes; all of it must fit.
type ListOptions struct {
	Metadata map[string]string
	States   []string // empty = all
}

// List finds sandboxes.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[*Info, error] {
	query := url.Values{"limit": {"100"}}
	if len(o.Metadata) > 0 {
		pairs := url.Values{}
		for k, v := range o.Metadata {
			pairs.Set(k, v)
		}
		query.Set("metadata", pairs.Encode())
	}
	if len(o.States) == 0 {
		o.States = []string{StateRunning, StatePaused}
	}
	query.Set("state", strings.Join(o.States, ","))
	return pages[*Info](ctx, c, "list", "/v2/sandboxes", query)
}

// pages gives every element of a listing that comes in pages.
func pages[T any](ctx context.Context, c *Client, op, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for {
			var page []T
			head, err := c.get(ctx, op, path, query, &page)
			if err != nil {
				yield(none, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			next := head.Get("X-Next-Token")
			if next == "" {
				return
			}
			query.Set("nextToken", next)
		}
	}
}

// Kill removes a sandbox, running or paused. One that is gone is no error.
func (c *Client) Kill(ctx context.Context, id string) error {
	err := c.del(ctx, "kill", "/sandboxes/"+segment(id))
	if errors.Is(err, errs.SandboxGone) {
		return nil
	}
	return err
}

// Pause freezes a sandbox and keeps its memory, or with memory false its files only. One that is paused is no error.
func (c *Client) Pause(ctx context.Context, id string, memory bool) error {
	var body any
	if !memory {
		body = map[string]bool{"memory": false}
	}
	_, err := c.api.Do(ctx, &vendorhttp.Request{Op: "pause", Method: http.MethodPost, Path: "/sandboxes/" + segment(id) + "/pause", JSON: body, Attempts: 1}, nil)
	if err == nil || errors.Is(err, errs.SandboxGone) {
		return err
	}
	// It may be paused already, or be pausing for a call whose answer was lost.
	if info, e := c.Get(ctx, id); e == nil && info.State == StatePaused {
		return nil
	}
	return err
}

// SetTimeout moves a sandbox's end to so long from now, also to sooner.
func (c *Client) SetTimeout(ctx context.Context, id string, d time.Duration) error {
	return c.post(ctx, "set the timeout", "/sandboxes/"+segment(id)+"/timeout", true, map[string]int{"timeout": seconds(d)}, nil)
}

// SetNetwork replaces what a running sandbox may reach.
func (c *Client) SetNetwork(ctx context.Context, id string, n *Network, allowInternet *bool) error {
	body := struct {
		*Network
		AllowInternetAccess *bool `json:"allow_internet_access,omitempty"`
	}{n, allowInternet}
	_, err := c.api.Do(ctx, &vendorhttp.Request{Op: "set the network", Method: http.MethodPut, Path: "/sandboxes/" + segment(id) + "/network", JSON: body}, nil)
	return err
}

// Metric is how a sandbox was at one time.
type Metric struct {
	TimestampUnix int64   `json:"timestampUnix"`
	CPUCount      int     `json:"cpuCount"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       uint64  `json:"memUsed"`
	MemTotal      uint64  `json:"memTotal"`
	DiskUsed      uint64  `json:"diskUsed"`
	DiskTotal     uint64  `json:"diskTotal"`
}

// Metrics gives what was measured between two times; zero times are the vendor's defaults.
func (c *Client) Metrics(ctx context.Context, id string, start, end time.Time) ([]Metric, error) {
	query := url.Values{}
	for name, t := range map[string]time.Time{"start": start, "end": end} {
		if !t.IsZero() {
			query.Set(name, strconv.FormatInt(t.Unix(), 10))
		}
	}
	var out []Metric
	_, err := c.get(ctx, "metrics", "/sandboxes/"+segment(id)+"/metrics", query, &out)
	return out, err
}

// seconds rounds up: a sandbox lives at least as long as was asked.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
