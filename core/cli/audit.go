// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/audit"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runs"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "Look at what a run did to the world, and whether its audit log is whole", a.auditShowCommand(), a.auditVerifyCommand())
}

// verifyAudit reads the audit log of a run.
func (a *app) verifyAudit(dir runs.Dir, id, expect string, see func(audit.Record, error)) (*audit.Report, error) {
	path, err := runlog.Dir(dir.Path, id)
	if err != nil {
		return nil, err
	}
	rep, err := audit.Verify(path, expect, see)
	if errors.Is(err, fs.ErrNotExist) {
		if outer, _, inside := strings.Cut(id, ".call-"); inside {
			return nil, fmt.Errorf("run %s is inside run %s, whose audit log has what it did", id, outer)
		}
		return nil, fmt.Errorf("run %s has no audit log on this machine: it worked elsewhere, or an older berth made it", id)
	}
	return rep, err
}

// tampered tells what is wrong with a log.
func (a *app) tampered(rep *audit.Report) error {
	if rep.Torn > 0 {
		fmt.Fprintf(a.Err, "the last %d bytes are a record that is being written, or that berth was killed at\n", rep.Torn)
	}
	if rep.OK() {
		return nil
	}
	for _, f := range rep.Findings {
		fmt.Fprintf(a.Err, "%s line %d: %s\n", audit.FileName, f.Line, f.Problem)
	}
	return exit(ExitFailure, fmt.Errorf("the audit log is not as it was written: %d findings", len(rep.Findings)))
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var expect string
	var asJSON bool
	c := a.withRun("verify [flags] RUN", "Check that nothing was changed, removed or put into a run's audit log", func(_ context.Context, reg *runs.Register, id string) error {
		rep, err := a.verifyAudit(reg.Dir, id, expect, nil)
		if err != nil {
			return err
		}
		if asJSON {
			if err := a.printJSON(rep); err != nil {
				return err
			}
		} else if rep.OK() {
			fmt.Fprintf(a.Out, "%d records, whole; the last has the hash %s\n", rep.Records, rep.Head)
		}
		return a.tampered(rep)
	})
	c.Flags().StringVar(&expect, "expect", "", "fail unless a record has this `HASH`, which was kept elsewhere")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) auditShowCommand() *cobra.Command {
	var asJSON bool
	c := a.withRun("show [flags] RUN", "Print what a run did: commands, files, ports, mounts, snapshots, tool calls and approvals", func(_ context.Context, reg *runs.Register, id string) error {
		enc := json.NewEncoder(a.Out)
		enc.SetEscapeHTML(false)
		var werr error
		rep, err := a.verifyAudit(reg.Dir, id, "", func(r audit.Record, bad error) {
			switch {
			case werr != nil:
			case asJSON:
				werr = enc.Encode(r)
			default:
				werr = printRecord(a.Out, &r, bad)
			}
		})
		if err = errors.Join(err, werr); err != nil {
			return err
		}
		return a.tampered(rep)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

// printRecord prints a record on one line. An end is told shortly: what it ends has all of it.
func printRecord(w io.Writer, r *audit.Record, bad error) error {
	mark := " "
	if bad != nil {
		mark = "!"
	}
	who := r.Agent
	if r.Call != "" {
		who += "/" + r.Call
	}
	line := fmt.Sprintf("%s%5d %s %-24s %s", mark, r.Seq, r.Time.Local().Format("2006-01-02 15:04:05.000"), r.Op, who)
	if r.Phase == audit.End {
		line += fmt.Sprintf(" ended #%d", r.Of)
	}
	if r.OK != nil && !*r.OK {
		line += " failed"
	}
	if r.Error != "" {
		line += ": " + r.Error
	}
	if len(r.More) > 0 {
		var detail strings.Builder
		enc := json.NewEncoder(&detail)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r.More); err != nil {
			return err
		}
		line += " " + detail.String()
	}
	_, err := fmt.Fprintln(w, show.Lines(strings.ReplaceAll(strings.TrimRight(line, " \n"), "\n", " ")))
	return err
}
