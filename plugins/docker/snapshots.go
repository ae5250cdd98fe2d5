// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/box"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Snapshots lists the snapshots on the engine.
func (d *docker) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return func(yield func(driver.NativeSnapshot, error) bool) {
		e, err := d.reach(ctx)
		if err != nil {
			yield(driver.NativeSnapshot{}, err)
			return
		}
		f := client.Filters{}.Add("label", plan.LabelSnapshot)
		for k, v := range labels {
			f.Add("label", box.LabelSnapshotPrefix+k+"="+v)
		}
		list, err := e.ImageList(ctx, client.ImageListOptions{Filters: f})
		if err != nil {
			yield(driver.NativeSnapshot{}, engine.Error(errs.Internal, "list snapshots", err))
			return
		}
		for _, img := range list.Items {
			if engine.Released(img.RepoTags) {
				continue
			}
			s := driver.NativeSnapshot{
				ID: img.ID, SandboxID: img.Labels[plan.LabelSnapshot], Created: time.Unix(img.Created, 0), Bytes: uint64(img.Size), Labels: map[string]string{},
			}
			for k, v := range img.Labels {
				if name, ok := strings.CutPrefix(k, box.LabelSnapshotPrefix); ok {
					s.Labels[name] = v
				}
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// DeleteSnapshot removes a snapshot. One that is gone already is no error. The image of one that containers were made from
// goes with the last of them.
func (d *docker) DeleteSnapshot(ctx context.Context, id string) error {
	e, err := d.reach(ctx)
	if err != nil {
		return err
	}
	img, err := e.ImageInspect(ctx, id)
	if engine.NotFound(err) {
		return nil
	}
	if err == nil && (img.Config == nil || img.Config.Labels[plan.LabelSnapshot] == "") {
		return errs.New(errs.InvalidArgument, "image %s is no snapshot", id)
	}
	if err == nil {
		err = e.Release(ctx, img.ID, img.RepoTags)
	}
	return engine.Error(errs.Internal, "remove the snapshot", err)
}
