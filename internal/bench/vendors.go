// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/modal-labs/modal-client/go"

	daytona "github.com/berth-dev/berth/plugins/daytona/client"
	e2b "github.com/berth-dev/berth/plugins/e2b/client"
	modalclient "github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/sdk/errs"
)

// started is a sandbox that is ended again when what has to follow its making fails.
func started(v byHand, follow ...func() error) (byHand, error) {
	for _, f := range follow {
		if err := f(); err != nil {
			return nil, errors.Join(err, v.end())
		}
	}
	return v, nil
}

func discard(r io.ReadCloser) (int64, error) {
	n, err := io.Copy(io.Discard, r)
	return n, errors.Join(err, r.Close())
}

// e2bByHand is one at E2B.
type e2bByHand struct {
	ctx context.Context //nolint:containedctx // one run, one context
	c   *e2b.Client
	s   *e2b.Sandbox
}

func openE2B(h *hostedBench) (byHand, error) {
	c, err := e2b.New(e2b.Options{APIKey: h.process.text("api_key"), APIURL: h.process.text("api_url"), SandboxURL: h.process.text("sandbox_url")})
	if err != nil {
		return nil, err
	}
	s, err := c.Create(h.ctx, &e2b.CreateRequest{TemplateID: "base", Timeout: 300, Secure: true})
	if err != nil {
		return nil, err
	}
	v := &e2bByHand{h.ctx, c, s}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(h.guest)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, errors.Join(err, v.end())
	}
	return started(v, func() error {
		return s.Write(h.ctx, "/tmp/guest", &packed, e2b.WriteOptions{Length: int64(packed.Len()), Gzip: true})
	}, v.run)
}

func (v *e2bByHand) run() error {
	p, err := v.s.Start(v.ctx, e2b.Command{Cmd: "true"})
	if err != nil {
		return err
	}
	defer p.Close()
	for {
		ev, err := p.Next()
		if err != nil {
			return err
		}
		if ev.Kind == e2b.Ended {
			if ev.Code != 0 {
				return fmt.Errorf("true ended with %d", ev.Code)
			}
			return nil
		}
	}
}

func (v *e2bByHand) write(path string, text []byte) error {
	return v.s.Write(v.ctx, path, bytes.NewReader(text), e2b.WriteOptions{})
}

func (v *e2bByHand) read(path string) (int64, error) {
	r, err := v.s.Read(v.ctx, path, "", 0)
	if err != nil {
		return 0, err
	}
	return discard(r)
}

func (v *e2bByHand) end() error {
	defer v.c.CloseIdle()
	return v.c.Kill(v.ctx, v.s.ID())
}

// daytonaByHand is one at Daytona.
type daytonaByHand struct {
	ctx context.Context //nolint:containedctx // one run, one context
	c   *daytona.Client
	id  string
	t   *daytona.Toolbox
}

func openDaytona(h *hostedBench) (byHand, error) {
	c, err := daytona.New(daytona.Options{URL: h.process.text("api_url"), Token: h.process.text("api_key")})
	if err != nil {
		return nil, err
	}
	s, err := c.Create(h.ctx, &daytona.Create{User: "root"})
	if err != nil {
		return nil, err
	}
	v := &daytonaByHand{ctx: h.ctx, c: c, id: s.ID}
	return started(v, func() error {
		s, err := c.Await(h.ctx, s.ID, nil)
		if err == nil {
			v.t, err = c.Toolbox(s)
		}
		return err
	}, func() error { return v.write("/tmp/guest", h.guest) }, v.run)
}

func (v *daytonaByHand) run() error {
	out, err := v.t.Execute(v.ctx, daytona.Execution{Command: "true"})
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("true ended with %d", out.ExitCode)
	}
	return err
}

func (v *daytonaByHand) write(path string, text []byte) error {
	return v.t.Upload(v.ctx, path, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
}

func (v *daytonaByHand) read(path string) (int64, error) {
	r, err := v.t.Download(v.ctx, path, 0)
	if err != nil {
		return 0, err
	}
	return discard(r)
}

func (v *daytonaByHand) end() error {
	defer v.c.Close()
	if err := v.c.Settled(v.ctx, func() error { return v.c.Delete(v.ctx, v.id) }); err != nil {
		return err
	}
	// That only begins it.
	if _, err := v.c.Await(v.ctx, v.id, nil); err != nil && !errors.Is(err, errs.SandboxGone) {
		return err
	}
	return nil
}

// modalByHand is one at Modal.
type modalByHand struct {
	ctx context.Context //nolint:containedctx // one run, one context
	c   *modalclient.Client
	s   *modal.Sandbox
}

func openModal(h *hostedBench) (byHand, error) {
	c, err := modalclient.New(modalclient.Options{
		ServerURL: h.process.text("server_url"), TokenID: h.process.text("token_id"), TokenSecret: h.process.text("token_secret"),
	})
	if err != nil {
		return nil, err
	}
	app, err := c.Apps.FromName(h.ctx, "by-hand", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		c.Close()
		return nil, err
	}
	s, err := c.Sandboxes.Create(h.ctx, app, c.Images.FromRegistry(h.sandbox.text("image"), nil), &modal.SandboxCreateParams{Command: []string{"sleep", "infinity"}})
	if err != nil {
		c.Close()
		return nil, err
	}
	v := &modalByHand{h.ctx, c, s}
	return started(v, func() error { return v.write("/tmp/guest", h.guest) }, v.run)
}

func (v *modalByHand) run() error {
	p, err := v.s.Exec(v.ctx, []string{"true"}, nil)
	if err != nil {
		return err
	}
	code, err := p.Wait(v.ctx, nil)
	if err == nil && code != 0 {
		err = fmt.Errorf("true ended with %d", code)
	}
	return err
}

func (v *modalByHand) write(path string, text []byte) error {
	return v.s.Filesystem.WriteBytes(v.ctx, text, path, nil)
}

func (v *modalByHand) read(path string) (int64, error) {
	b, err := v.s.Filesystem.ReadBytes(v.ctx, path, nil)
	return int64(len(b)), err
}

func (v *modalByHand) end() error {
	defer v.c.Close()
	_, err := v.s.Terminate(v.ctx, &modal.SandboxTerminateParams{Wait: true})
	return err
}
