// SPDX-License-Identifier: Apache-2.0

// Command bench measures berth against its targets. Each figure stands beside a floor that was measured in the same
// run: machines are noisy, ratios are not. It prints a table for people and, with -json, one line a figure.
//
// The drivers are the built ones, in processes of their own, as a user has them: run it through `make bench`.
//
// Size: the rows of one table, which share how they are taken.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("only", "", "run the measurements whose name matches this `regexp`")
	out := flag.String("json", "", "write a line for each figure to this `file`")
	bin := flag.String("bin", "bin", "`directory` of the built binaries")
	quick := flag.Bool("quick", false, "few samples, to see that everything runs")
	flag.Parse()
	if err := measure(ctx, *only, *out, *bin, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figure is one measurement: what was measured, beside the floor that it is held against.
type figure struct {
	name    string
	product samples
	floor   samples
	floorIs string
	ratio   float64 // target: product at most so many times the floor; 0 = none
	most    float64 // target in ms; 0 = none
	over    float64 // target: product at most so many ms above the floor; 0 = none
	note    string
	peers   []peer
}

// peer is another way to do the same.
type peer struct {
	is      string
	samples samples
	ratio   float64 // target: product at most so many times this; 0 = none
}

// samples are times in milliseconds.
type samples []float64

func (s samples) at(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	c := slices.Sorted(slices.Values(s))
	return c[min(len(c)-1, int(q*float64(len(c))))]
}

// bench is the state of a run.
type bench struct {
	ctx     context.Context //nolint:containedctx // one run, one context
	dir     string          // scratch, on tmpfs where there is one
	bin     string
	quick   bool
	match   *regexp.Regexp
	figures []figure
	notes   []string // what was not measured, and why
	env     *environment
}

// n is how many samples are taken: few when only the running is tried.
func (b *bench) n(usual int) int {
	if b.quick {
		return min(usual, 2)
	}
	return usual
}

func (b *bench) add(f figure) {
	b.figures = append(b.figures, f)
	fmt.Fprintf(os.Stderr, "  %-44s %10.3f ms\n", f.name, f.product.at(0.5))
}

func measure(ctx context.Context, only, out, bin string, quick bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	base := os.TempDir()
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		base = "/dev/shm" // disks disturb each other's figures
	}
	dir, err := os.MkdirTemp(base, "berth-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // scratch
	b := &bench{ctx: ctx, dir: dir, bin: bin, quick: quick, match: match}
	for _, m := range []struct {
		name string
		f    func(*bench) error
	}{
		{"start", startTime},
		{"validate", validateTime},
		{"patch", patchTime},
		{"turns", turnTime},
		{"create", createTime},
		{"exec", execTime},
		{"output", outputTime},
		{"pty", ptyTime},
		{"files", fileTime},
		{"manifest", manifestTime},
		{"local_dir", localDirTime},
		{"scale", scaleTime},
		{"snapshot", snapshotTime},
		{"docker/life", withEngine((*dockerBench).life)},
		{"docker/first", withEngine((*dockerBench).first)},
		{"docker/stop", withEngine((*dockerBench).stop)},
		{"docker/exec", withEngine((*dockerBench).within)},
		{"docker/files", withEngine((*dockerBench).files)},
		{"docker/import", withEngine((*dockerBench).trees)},
		{"docker/scale", withEngine((*dockerBench).scale)},
		{"daytona/life", withFake("daytona", openDaytona, (*hostedBench).life)},
		{"daytona/exec", withFake("daytona", openDaytona, (*hostedBench).within)},
		{"e2b/life", withFake("e2b", openE2B, (*hostedBench).life)},
		{"e2b/exec", withFake("e2b", openE2B, (*hostedBench).within)},
		{"modal/life", withFake("modal", openModal, (*hostedBench).life)},
		{"modal/exec", withFake("modal", openModal, (*hostedBench).within)},
	} {
		if !match.MatchString(m.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, m.name)
		if err := m.f(b); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	b.env.close()
	b.table()
	if out == "" {
		return nil
	}
	return b.lines(out)
}

func (b *bench) table() {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	verdicts := map[bool]string{true: "met", false: "MISSED"}
	fmt.Fprintln(w, "measurement\tp50 ms\tp95 ms\tfloor ms\tratio\ttarget\t\t")
	for _, f := range b.figures {
		ratio, target, verdict := "", "", ""
		p, fl := f.product.at(0.5), f.floor.at(0.5)
		ok := true
		if fl > 0 {
			ratio = fmt.Sprintf("%.2f", p/fl)
		}
		if f.ratio > 0 {
			target = fmt.Sprintf("<= %.2f x %s", f.ratio, f.floorIs)
			ok = p <= f.ratio*fl
		}
		if f.most > 0 {
			target += fmt.Sprintf(" <= %g ms", f.most)
			ok = ok && p <= f.most
		}
		if f.over > 0 {
			target += fmt.Sprintf("<= %s + %g ms", f.floorIs, f.over)
			ok = ok && p <= fl+f.over
		}
		if target != "" {
			verdict = verdicts[ok]
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%s\t%s\t%s\t  %s\n", f.name, p, f.product.at(0.95), fl, ratio, target, verdict, f.note)
		for _, o := range f.peers {
			at, target, verdict := o.samples.at(0.5), o.is, ""
			if o.ratio > 0 {
				target, verdict = fmt.Sprintf("<= %.3g x %s", o.ratio, o.is), verdicts[p <= o.ratio*at]
			}
			fmt.Fprintf(w, "\t\t\t%.3f\t%.3f\t%s\t%s\t\n", at, p/at, target, verdict)
		}
	}
	for _, n := range b.notes {
		fmt.Fprintln(w, n)
	}
	_ = w.Flush()
}

// line is a figure as other tools read it.
type line struct {
	Side string  `json:"side"`
	Item string  `json:"item"`
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	Note string  `json:"note,omitempty"`
}

func (b *bench) lines(path string) error {
	f, err := os.Create(path) //nolint:forbidigo // the user named the file
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, fig := range b.figures {
		type row struct {
			side, name string
			samples    samples
		}
		rows := []row{{"product", fig.name, fig.product}, {"floor", fig.floorIs, fig.floor}}
		for _, o := range fig.peers {
			rows = append(rows, row{"peer", o.is, o.samples})
		}
		for _, s := range rows {
			if len(s.samples) == 0 {
				continue
			}
			if err := enc.Encode(line{
				Side: s.side, Name: s.name, Unit: "ms", N: len(s.samples), P50: s.samples.at(0.5), P95: s.samples.at(0.95),
				Min: s.samples.at(0), Max: s.samples.at(1), Note: fig.note,
			}); err != nil {
				return err
			}
		}
	}
	return f.Close()
}

// pairs times product and floor in turn, so that both see the same machine.
func (b *bench) pairs(n int, product, floor func() error) (p, f samples, err error) {
	s, err := b.rounds(n, product, floor)
	if err != nil {
		return nil, nil, err
	}
	return s[0], s[1], nil
}

// rounds times all in turn, a round after another. One that is nil has no samples.
func (b *bench) rounds(n int, all ...func() error) ([]samples, error) {
	out := make([]samples, len(all))
	for i := range b.n(n) + 1 {
		for j, f := range all {
			if f == nil {
				continue
			}
			began := time.Now()
			if err := f(); err != nil {
				return nil, err
			}
			if i > 0 { // the first is to warm up
				out[j] = append(out[j], float64(time.Since(began).Nanoseconds())/1e6)
			}
		}
		if b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
	}
	return out, nil
}
