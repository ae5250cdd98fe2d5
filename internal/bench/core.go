// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/patch"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

func startTime(b *bench) error {
	berth := filepath.Join(b.bin, "berth")
	p, f, err := b.pairs(50, func() error { return plainExec(b.ctx, io.Discard, berth, "version") },
		func() error { return plainExec(b.ctx, io.Discard, "/bin/true") })
	if err != nil {
		return err
	}
	b.add(figure{name: "start/version", product: p, floor: f, floorIs: "exec/true", most: 15})
	return nil
}

// validateTime validates a project of 500 agents in about 9,000 lines.
func validateTime(b *bench) error {
	dir := filepath.Join(b.dir, "large")
	var hcl strings.Builder
	hcl.WriteString("model_provider \"p\" {}\n\nmodel \"deep\" {\n  provider = model_provider.p\n  name     = \"gpt-5.6\"\n}\n\nmanifest \"m\" {}\n")
	for i := range 500 {
		fmt.Fprintf(&hcl, `
agent "a%[1]d" {
  model        = model.deep
  instructions = "You are agent %[1]d."
  manifest     = manifest.m
  handoffs     = [agent.a%[2]d]

  model_settings {
    verbosity = "low"
    reasoning {
      effort = "high"
    }
  }

  approvals {
    rule "push" {
      match    = ["^git push"]
      decision = "ask"
    }
  }
}
`, i, (i+1)%500)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(hcl.String()), 0o600); err != nil {
		return err
	}
	berth := filepath.Join(b.bin, "berth")
	p, f, err := b.pairs(10, func() error { return plainExec(b.ctx, io.Discard, berth, "validate", dir) },
		func() error { return plainExec(b.ctx, io.Discard, "/bin/true") })
	if err != nil {
		return err
	}
	b.add(figure{name: "validate/9000 lines", product: p, floor: f, floorIs: "exec/true", most: 500})
	return nil
}

// patchTime applies 200 hunks to 10,000 lines; the floor is an exact search that only goes forward.
func patchTime(b *bench) error {
	for _, fuzzy := range []bool{false, true} {
		file, diff := patchWork(fuzzy)
		hunks, err := patch.ParseHunks(diff)
		if err != nil {
			return err
		}
		p, f, err := b.pairs(100, func() error {
			_, _, err := patch.Update(file, hunks)
			return err
		}, func() error { return plainPatch(file, hunks) })
		if err != nil {
			return err
		}
		fig := figure{name: "apply_10000x200/exact", product: p, floor: f, floorIs: "apply_10000x200/go exact", ratio: 2, most: 1.5}
		if fuzzy {
			fig.name, fig.ratio, fig.most = "apply_10000x200/fuzzy", 6, 0
		}
		b.add(fig)
	}
	return nil
}

func patchWork(fuzzy bool) (file []byte, diff string) {
	var f, d bytes.Buffer
	for i := range 10_000 {
		l := fmt.Sprintf("    value_%d = compute(%d)", i, i*7)
		f.WriteString(l + "\n")
		if fuzzy {
			l += " "
		}
		switch i % 50 {
		case 24, 26:
			d.WriteString(" " + l + "\n")
		case 25:
			d.WriteString("-" + l + "\n+    changed\n")
		case 49:
			d.WriteString("@@\n")
		}
	}
	return f.Bytes(), strings.TrimSuffix(d.String(), "@@\n")
}

func plainPatch(file []byte, hunks []patch.Hunk) error {
	lines := strings.Split(string(file), "\n")
	var out strings.Builder
	at := 0
	for _, h := range hunks {
		first := strings.TrimRight(h.Lines[0].Text, " ")
		for ; at < len(lines) && lines[at] != first; at++ {
			out.WriteString(lines[at] + "\n")
		}
		if at == len(lines) {
			return errors.New("the floor found no place")
		}
		for _, l := range h.Lines {
			switch l.Kind {
			case patch.Insert:
				out.WriteString(l.Text + "\n")
			case patch.Context:
				out.WriteString(lines[at] + "\n")
				at++
			case patch.Remove:
				at++
			}
		}
	}
	for ; at < len(lines)-1; at++ {
		out.WriteString(lines[at] + "\n")
	}
	return nil
}

// turnTime is what a turn costs beyond model and tool: both do nothing here.
func turnTime(b *bench) error {
	var small float64
	for _, n := range []int{100, 1000, 10_000} {
		if b.quick {
			n /= 10
		}
		var size int64
		p, _, err := b.pairs(3, func() error {
			var err error
			size, err = turns(b.ctx, filepath.Join(b.dir, "runs"), n)
			return err
		}, nil)
		if err != nil {
			return err
		}
		for i := range p {
			p[i] /= float64(n)
		}
		f := figure{name: fmt.Sprintf("overhead_per_turn/turns=%d", n), product: p, most: 0.3, note: fmt.Sprintf("%d bytes of log and state a turn", size/int64(n))}
		if small == 0 {
			small = p.at(0.5)
		} else {
			f.note += fmt.Sprintf("; %.2f x the cost at 100 turns", p.at(0.5)/small)
		}
		b.add(f)
	}
	return nil
}

func turns(ctx context.Context, base string, n int) (size int64, err error) {
	id := runlog.NewID(time.Now())
	dir, err := runlog.Dir(base, id)
	if err != nil {
		return 0, err
	}
	log, err := runlog.Create(dir)
	if err != nil {
		return 0, err
	}
	none := 0
	res, err := runner.Run(ctx, runner.Config{
		RunID: id, Log: log,
		Run: &spec.Run{Agent: &spec.Agent{Label: "a"}, Input: "go", MaxTurns: &none},
		Member: runner.Member{
			Model: &talker{turns: n}, ModelName: "none",
			Tools: func(runner.Session) ([]tool.Tool, error) { return []tool.Tool{noop{}}, nil },
		},
	})
	if err = errors.Join(err, log.Close()); err != nil {
		return 0, err
	}
	if res.Turns != n {
		return 0, fmt.Errorf("%d turns, %s", res.Turns, res.Status)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			size += fi.Size()
		}
	}
	return size, err
}

// talker calls a tool in every turn but the last.
type talker struct{ turns, said int }

func (*talker) Supports() model.Support { return model.Support{ParallelTools: true} }

func (t *talker) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		t.said++
		it := model.Item{Type: model.ItemFunctionCall, Raw: json.RawMessage(fmt.Sprintf(`{"type":"function_call","call_id":"c%d","name":"noop","arguments":"{}"}`, t.said))}
		if t.said >= t.turns {
			it = model.Item{Type: model.ItemMessage, Raw: json.RawMessage(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}`)}
		}
		yield(model.Done{Response: &model.Response{ID: "r", Items: []model.Item{it}}}, nil)
	}
}

type noop struct{}

func (noop) Spec() model.ToolSpec {
	return model.ToolSpec{Kind: model.ToolFunction, Name: "noop", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (noop) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Text: "ok"}, nil
}
