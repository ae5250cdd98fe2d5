// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

// cleanupTimeout bounds the cleanup of one sandbox.
const cleanupTimeout = 2 * time.Minute

const usage = `usage: %[1]s describe [--json]          what the driver is and can do
       %[1]s version                    its version
       %[1]s cleanup --state-file FILE  destroy one sandbox
       %[1]s serve                      serve until Ctrl-C, for a debugger; prints where berth finds it
`

// command runs a subcommand and gives the exit code.
func (p *program) command(name string, args []string) int {
	p.log = hclog.New(&hclog.LoggerOptions{Name: "driver." + name, Output: lineWriter{p.stderr, p.redact}, Level: hclog.Warn})
	if !slices.Contains([]string{"describe", "version", "cleanup", "serve"}, args[0]) {
		fmt.Fprintf(p.stderr, usage, os.Args[0])
		return 2
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	asJSON := flags.Bool("json", false, "print JSON (describe)")
	stateFile := flags.String("state-file", "", "`file` that names the sandbox (cleanup)")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if err := p.prepare(); err != nil {
		fmt.Fprintf(p.stderr, "driver is faulty: %v\n", err)
		return 1
	}
	var err error
	switch args[0] {
	case "describe":
		err = p.describe(p.driver.Describe(), *asJSON)
	case "version":
		desc := p.driver.Describe()
		_, err = fmt.Fprintf(p.stdout, "%s %s, protocol %d, %s/%s\n", desc.Name, desc.Version, handshake.ProtocolVersion, runtime.GOOS, runtime.GOARCH)
	case "cleanup":
		err = cleanup(p.driver, *stateFile)
	case "serve":
		err = p.standalone(name)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

func (p *program) describe(d driver.Description, asJSON bool) error {
	b, err := wire.MarshalDescription(d)
	if err != nil {
		return err
	}
	if asJSON {
		_, err = fmt.Fprintf(p.stdout, "%s\n", b)
		return err
	}
	w := p.stdout
	fmt.Fprintf(w, "%s %s\n", d.Name, d.Version)
	if d.Docs != "" {
		fmt.Fprintf(w, "docs       %s\n", d.Docs)
	}
	for _, f := range d.Features {
		fmt.Fprintf(w, "feature    %s\n", f)
	}
	for _, u := range d.Unimplementable {
		fmt.Fprintf(w, "never      %s: %s\n", u.Feature, u.Reason)
	}
	for _, i := range d.Isolation {
		fmt.Fprintf(w, "isolation  %s: %s\n", i.Axis, i.Statement)
		if i.Gap != "" {
			fmt.Fprintf(w, "           gap: %s\n", i.Gap)
		}
	}
	for _, m := range d.Mounts {
		fmt.Fprintf(w, "mount      %s %v\n", m.Kind, m.Strategies)
	}
	return nil
}

// cleanupFile names one sandbox: how the driver was configured, and how the sandbox would be resumed, both as the JSON
// form of their messages.
type cleanupFile struct {
	Configure json.RawMessage `json:"configure,omitempty"`
	Resume    json.RawMessage `json:"resume"`
}

// cleanup destroys a sandbox without a core. One that is gone already is no error.
func cleanup(d driver.Driver, path string) error {
	if path == "" {
		return errs.New(errs.InvalidArgument, "--state-file is missing")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file cleanupFile
	if err := json.Unmarshal(b, &file); err != nil {
		return errs.Wrap(errs.InvalidArgument, "read "+path, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), cleanupTimeout, errs.New(errs.Canceled, "not cleaned up within %s", cleanupTimeout))
	defer cancel()
	if c, ok := d.(driver.Configurer); ok && file.Configure != nil {
		var req pb.ConfigureRequest
		if err := protojson.Unmarshal(file.Configure, &req); err != nil {
			return errs.Wrap(errs.InvalidArgument, "read configure of "+path, err)
		}
		for _, found := range c.Configure(ctx, wire.Host(&req), wire.Value(req.GetConfig())) {
			if !found.Warning {
				return errs.New(errs.ConfigInvalid, "configure: %s: %s", found.Summary, found.Detail)
			}
		}
	}
	var req pb.ResumeRequest
	if err := protojson.Unmarshal(file.Resume, &req); err != nil {
		return errs.Wrap(errs.InvalidArgument, "read resume of "+path, err)
	}
	r := wire.ResumeRequest(&req)
	r.Progress = func(driver.Progress) {}
	sb, err := d.Resume(ctx, r)
	if errors.Is(err, errs.SandboxGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return sb.Destroy(ctx)
}
