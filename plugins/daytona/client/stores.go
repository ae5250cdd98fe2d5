// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// TakeSnapshot makes a snapshot of a sandbox's files under a name of its own. The sandbox is in [StateSnapshotting] until
// it is made.
func (c *Client) TakeSnapshot(ctx context.Context, id, name string, memory bool) (*Sandbox, error) {
	body := map[string]any{"name": name}
	if memory {
		body["includeMemory"] = true
	}
	var s Sandbox
	err := c.do(ctx, &vendorhttp.Request{Op: "take a snapshot", Method: http.MethodPost, Path: of(id, "snapshot"), JSON: body, Timeout: serverWait}, &s)
	if err != nil {
		return nil, missing(err)
	}
	return &s, nil
}

// Snapshots lists those of the organization, and the vendor's own.
func (c *Client) Snapshots(ctx context.Context) iter.Seq2[*Snapshot, error] {
	return func(yield func(*Snapshot, error) bool) {
		for n := 1; ; n++ {
			var page struct {
				Items      []*Snapshot `json:"items"`
				TotalPages int         `json:"totalPages"`
			}
			req := &vendorhttp.Request{Op: "list snapshots", Path: "snapshots", Query: query("page", strconv.Itoa(n), "limit", "100")}
			if err := c.do(ctx, req, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Items {
				if !yield(s, nil) {
					return
				}
			}
			if n >= page.TotalPages || len(page.Items) == 0 {
				return
			}
		}
	}
}

// Snapshot finds one by id or name.
func (c *Client) Snapshot(ctx context.Context, idOrName string) (*Snapshot, error) {
	var s Snapshot
	if err := c.do(ctx, &vendorhttp.Request{Op: "look at a snapshot", Path: "snapshots/" + url.PathEscape(idOrName)}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// CreateSnapshot makes one of an image.
func (c *Client) CreateSnapshot(ctx context.Context, want *NewSnapshot) (*Snapshot, error) {
	var s Snapshot
	if err := c.do(ctx, &vendorhttp.Request{Op: "make a snapshot", Method: http.MethodPost, Path: "snapshots", JSON: want}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// DeleteSnapshot removes one, by its id. One that is not there is no error.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	err := c.do(ctx, &vendorhttp.Request{Op: "delete a snapshot", Method: http.MethodDelete, Path: "snapshots/" + url.PathEscape(id)}, nil)
	if NotFound(err) {
		return nil
	}
	return err
}

// Volume finds a volume by its name.
func (c *Client) Volume(ctx context.Context, name string) (*Volume, error) {
	var v Volume
	if err := c.do(ctx, &vendorhttp.Request{Op: "look at a volume", Path: "volumes/by-name/" + url.PathEscape(name)}, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

// Volumes lists all.
func (c *Client) Volumes(ctx context.Context) ([]*Volume, error) {
	var all []*Volume
	if err := c.do(ctx, &vendorhttp.Request{Op: "list volumes", Path: "volumes"}, &all); err != nil {
		return nil, err
	}
	return all, nil
}

// EnsureVolume finds a volume by its name, or makes it, and waits until it can be used.
func (c *Client) EnsureVolume(ctx context.Context, name string) (*Volume, error) {
	v, err := c.Volume(ctx, name)
	if NotFound(err) {
		v = new(Volume)
		err = c.do(ctx, &vendorhttp.Request{Op: "make a volume", Method: http.MethodPost, Path: "volumes", JSON: map[string]string{"name": name}}, v)
		if err != nil { // another may have made it, or the answer was lost
			if again, e := c.Volume(ctx, name); e == nil {
				v, err = again, nil
			}
		}
	}
	for d := firstLook; err == nil && v.State != VolumeReady; {
		if v.State == "error" || v.State == "deleting" || v.State == "pending_delete" || v.State == "deleted" {
			return nil, errs.New(errs.MountFailed, "volume %q is in state %s: %s", name, v.State, v.ErrorReason)
		}
		if err = wait(ctx, &d); err == nil {
			v, err = c.Volume(ctx, name)
		}
	}
	return v, err
}

// DeleteVolume removes a volume that no sandbox uses.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	return c.do(ctx, &vendorhttp.Request{Op: "delete a volume", Method: http.MethodDelete, Path: "volumes/" + url.PathEscape(id)}, nil)
}
