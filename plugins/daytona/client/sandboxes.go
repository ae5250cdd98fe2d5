// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

func asError(err error) (*errs.Error, bool) { return errors.AsType[*errs.Error](err) }

// query makes one of names and values; those without a value are left out.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

// of is the path of something below a sandbox.
func of(sandbox, rest string) string {
	p := "sandbox/" + url.PathEscape(sandbox)
	if rest != "" {
		p += "/" + rest
	}
	return p
}

// missing gives the errors about one sandbox their code.
func missing(err error) error {
	if e, ok := asError(err); ok && e.Code == errs.FileNotFound {
		c := *e
		c.Code = errs.SandboxGone
		return &c
	}
	return err
}

// serverWait is how long the vendor itself waits for a sandbox to start, and time for its answer.
const serverWait = 30*time.Second + 30*time.Second

// Create makes a sandbox. From a snapshot it may be started when this returns; see [Client.Await]. It is sent once: when no
// answer came, look for the name.
func (c *Client) Create(ctx context.Context, want *Create) (*Sandbox, error) {
	var s Sandbox
	err := c.do(ctx, &vendorhttp.Request{Op: "create a sandbox", Method: http.MethodPost, Path: "sandbox", JSON: want, Timeout: serverWait}, &s)
	if e, ok := asError(err); ok && e.Code == errs.FileNotFound { // a snapshot, a volume
		bad := *e
		bad.Code = errs.ConfigInvalid
		return nil, &bad
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// Sandbox finds a sandbox by its id or name. One that is not there is errs.SandboxGone.
func (c *Client) Sandbox(ctx context.Context, idOrName string) (*Sandbox, error) {
	var s Sandbox
	if err := c.do(ctx, &vendorhttp.Request{Op: "look at a sandbox", Path: of(idOrName, "")}, &s); err != nil {
		return nil, missing(err)
	}
	return &s, nil
}

// Sandboxes lists those that have all labels. What the vendor gives of each lacks env, volumes and network.
func (c *Client) Sandboxes(ctx context.Context, labels map[string]string) iter.Seq2[*Sandbox, error] {
	return func(yield func(*Sandbox, error) bool) {
		filter := ""
		if len(labels) > 0 {
			b, err := json.Marshal(labels)
			if err != nil {
				yield(nil, errs.Wrap(errs.InvalidArgument, "list sandboxes", err))
				return
			}
			filter = string(b)
		}
		for cursor := ""; ; {
			var page struct {
				Items      []*Sandbox `json:"items"`
				NextCursor *string    `json:"nextCursor"`
			}
			err := c.do(ctx, &vendorhttp.Request{Op: "list sandboxes", Path: "sandbox", Query: query("labels", filter, "cursor", cursor, "limit", "100")}, &page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Items {
				if !yield(s, nil) {
					return
				}
			}
			if page.NextCursor == nil || *page.NextCursor == "" || *page.NextCursor == cursor {
				return
			}
			cursor = *page.NextCursor
		}
	}
}

// act asks for a change of one sandbox.
func (c *Client) act(ctx context.Context, op, id, what string, q url.Values, body any) (*Sandbox, error) {
	var s Sandbox
	// Asked for twice it is refused, or the same.
	req := &vendorhttp.Request{Op: op, Method: http.MethodPost, Path: of(id, what), Query: q, JSON: body, Repeatable: true, Timeout: serverWait}
	if err := c.do(ctx, req, &s); err != nil {
		return nil, missing(err)
	}
	return &s, nil
}

// Delete removes a sandbox. It may take a while to go.
func (c *Client) Delete(ctx context.Context, id string) error {
	return missing(c.do(ctx, &vendorhttp.Request{Op: "delete a sandbox", Method: http.MethodDelete, Path: of(id, "")}, nil))
}

// Start starts a sandbox that is stopped, archived or paused.
func (c *Client) Start(ctx context.Context, id string) (*Sandbox, error) {
	return c.act(ctx, "start the sandbox", id, "start", nil, nil)
}

// Stop ends every process and keeps the files. An ephemeral sandbox is gone then.
func (c *Client) Stop(ctx context.Context, id string, force bool) (*Sandbox, error) {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	return c.act(ctx, "stop the sandbox", id, "stop", q, nil)
}

// Pause freezes a sandbox, where its class can.
func (c *Client) Pause(ctx context.Context, id string) (*Sandbox, error) {
	return c.act(ctx, "pause the sandbox", id, "pause", nil, nil)
}

// Archive moves the files of a stopped sandbox to storage that costs less. Its next start takes long.
func (c *Client) Archive(ctx context.Context, id string) (*Sandbox, error) {
	return c.act(ctx, "archive the sandbox", id, "archive", nil, nil)
}

// Recover mends a sandbox in [StateError] that is recoverable, and starts it.
func (c *Client) Recover(ctx context.Context, id string) (*Sandbox, error) {
	return c.act(ctx, "recover the sandbox", id, "recover", nil, nil)
}

// Resize changes the resources.
func (c *Client) Resize(ctx context.Context, id string, to Resize) (*Sandbox, error) {
	return c.act(ctx, "resize the sandbox", id, "resize", nil, to)
}

// Fork makes another sandbox like this one, where its class can.
func (c *Client) Fork(ctx context.Context, id, name string) (*Sandbox, error) {
	var s Sandbox
	body := map[string]string{}
	if name != "" {
		body["name"] = name
	}
	err := c.do(ctx, &vendorhttp.Request{Op: "fork the sandbox", Method: http.MethodPost, Path: of(id, "fork"), JSON: body, Timeout: serverWait}, &s)
	if err != nil {
		return nil, missing(err)
	}
	return &s, nil
}

// SetLabels replaces all labels.
func (c *Client) SetLabels(ctx context.Context, id string, labels map[string]string) error {
	body := map[string]any{"labels": labels}
	return missing(c.do(ctx, &vendorhttp.Request{Op: "label the sandbox", Method: http.MethodPut, Path: of(id, "labels"), JSON: body}, nil))
}

// SetPublic says whether previews need no token.
func (c *Client) SetPublic(ctx context.Context, id string, public bool) (*Sandbox, error) {
	return c.act(ctx, "change who sees previews", id, "public/"+strconv.FormatBool(public), nil, nil)
}

// SetAutoStop says after how many minutes without activity a sandbox is stopped; 0 = never.
func (c *Client) SetAutoStop(ctx context.Context, id string, minutes int) (*Sandbox, error) {
	return c.act(ctx, "set auto-stop", id, "autostop/"+strconv.Itoa(minutes), nil, nil)
}

// SetAutoArchive says after how many minutes stopped a sandbox is archived; 0 = as late as it can be.
func (c *Client) SetAutoArchive(ctx context.Context, id string, minutes int) (*Sandbox, error) {
	return c.act(ctx, "set auto-archive", id, "autoarchive/"+strconv.Itoa(minutes), nil, nil)
}

// SetAutoDelete says after how many minutes stopped a sandbox is deleted; -1 = never, 0 = as it stops.
func (c *Client) SetAutoDelete(ctx context.Context, id string, minutes int) (*Sandbox, error) {
	return c.act(ctx, "set auto-delete", id, "autodelete/"+strconv.Itoa(minutes), nil, nil)
}

// SetNetwork changes what a sandbox may reach.
func (c *Client) SetNetwork(ctx context.Context, id string, n Network) (*Sandbox, error) {
	return c.act(ctx, "change the network policy", id, "network-settings", nil, n)
}

// Touch counts as activity: auto-stop begins to count again. It takes an id and no name.
func (c *Client) Touch(ctx context.Context, id string) error {
	return missing(c.do(ctx, &vendorhttp.Request{Op: "keep the sandbox", Method: http.MethodPost, Path: of(id, "last-activity"), Repeatable: true}, nil))
}

// Preview gives the address of a port inside.
func (c *Client) Preview(ctx context.Context, id string, port int) (*Preview, error) {
	var p Preview
	if err := c.do(ctx, &vendorhttp.Request{Op: "expose a port", Path: of(id, "ports/"+strconv.Itoa(port)+"/preview-url")}, &p); err != nil {
		return nil, missing(err)
	}
	return &p, nil
}

// SignedPreview gives an address that holds for ttl, at most a day.
func (c *Client) SignedPreview(ctx context.Context, id string, port int, ttl time.Duration) (*SignedPreview, error) {
	var p SignedPreview
	req := &vendorhttp.Request{
		Op: "expose a port", Path: of(id, "ports/"+strconv.Itoa(port)+"/signed-preview-url"),
		Query: query("expiresInSeconds", strconv.Itoa(int(ttl/time.Second))),
	}
	if err := c.do(ctx, req, &p); err != nil {
		return nil, missing(err)
	}
	return &p, nil
}

// ExpirePreview ends a signed address before its time.
func (c *Client) ExpirePreview(ctx context.Context, id string, p *SignedPreview) error {
	path := of(id, "ports/"+strconv.Itoa(p.Port)+"/signed-preview-url/"+url.PathEscape(p.Token)+"/expire")
	return missing(c.do(ctx, &vendorhttp.Request{Op: "close a port", Method: http.MethodPost, Path: path, Repeatable: true}, nil))
}

// SSH makes a token with which ssh gets in.
func (c *Client) SSH(ctx context.Context, id string, valid time.Duration) (*SSH, error) {
	var s SSH
	req := &vendorhttp.Request{
		Op: "make an ssh token", Method: http.MethodPost, Path: of(id, "ssh-access"), Repeatable: true,
		Query: query("expiresInMinutes", strconv.Itoa(int(valid/time.Minute))),
	}
	if err := c.do(ctx, req, &s); err != nil {
		return nil, missing(err)
	}
	return &s, nil
}

// The waits between looks at a sandbox: the first, and the longest.
const (
	firstLook   = 25 * time.Millisecond
	longestLook = time.Second
)

// Pause between two looks: it grows, and is over early when ctx ends.
func wait(ctx context.Context, d *time.Duration) error {
	t := time.NewTimer(*d)
	defer t.Stop()
	*d = min(*d*3/2, longestLook)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return &errs.Error{Code: errs.Canceled, Op: "wait for the sandbox", Err: context.Cause(ctx)}
	}
}

// Await looks at a sandbox until its state does not pass by itself any more. See is told of each look; it may be nil.
func (c *Client) Await(ctx context.Context, id string, see func(*Sandbox)) (*Sandbox, error) {
	for d := firstLook; ; {
		s, err := c.Sandbox(ctx, id)
		if err != nil {
			return nil, err
		}
		if see != nil {
			see(s)
		}
		if !s.State.Passing() {
			return s, nil
		}
		if err := wait(ctx, &d); err != nil {
			return nil, err
		}
	}
}

// Settled repeats do for as long as it meets a change of state, which ctx bounds.
func (c *Client) Settled(ctx context.Context, do func() error) error {
	for d := firstLook; ; {
		err := do()
		if !StateChanging(err) {
			return err
		}
		if wait(ctx, &d) != nil {
			return err
		}
	}
}
