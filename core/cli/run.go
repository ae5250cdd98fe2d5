// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/model/replay"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
)

// runFlags are the flags of run; they are kept beside the run, so that resume needs none.
type runFlags struct {
	projectFlags
	Run     string `json:"run,omitempty"`
	Model   string `json:"model,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Replay  string `json:"replay,omitempty"`
	Path    string `json:"path"`
	Input   string `json:"input"`
	Keep    bool   `json:"keep,omitempty"`
	From    string `json:"from,omitempty"` // snapshot
	Session string `json:"session,omitempty"`
	// Conversation is the key of the one to go on with.
	Conversation string `json:"conversation,omitempty"`
	Vars         bool   `json:"vars,omitempty"` // there were variables on the command line

	record string
	json   bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] [FILE|DIR] [PROMPT]",
		Short: "Run an agent",
		Long: `Runs the project's agent in its sandbox and prints its answer.

FILE or DIR is the project, the working directory when it is left out. PROMPT is the task; "-" reads it from standard
input. Without it the run block's input is used. Ctrl-C stops the run cleanly and says how to go on; a second one ends
it at once.`,
		Example: `  berth run . "Find the slowest test and say why"
  berth run examples/renewal-packet --replay examples/renewal-packet/transcript.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return fmt.Errorf("there are %d arguments, at most 2 are understood: put the prompt into quotes", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, err := a.runArgs(&f, args)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), &f, prompt)
		},
	}
	flags := c.Flags()
	f.add(flags)
	flags.StringVar(&f.Run, "run", "", "`NAME` of the run block or agent, where there are several")
	flags.StringVar(&f.Model, "model", "", "`MODEL` to use instead of the files' one")
	flags.StringVar(&f.Sandbox, "sandbox", "", "`NAME` of a sandbox block or a driver to use instead")
	flags.BoolVar(&f.Keep, "keep", false, "keep the sandbox, stopped, when the run is complete")
	flags.StringVar(&f.From, "from-snapshot", "", "start from this `SNAPSHOT`, a name or an id, instead of the manifest; latest and never are understood too")
	flags.StringVar(&f.Session, "session", "", "work in the session with this `ID|KEY`, and leave it as it was")
	flags.StringVar(&f.Conversation, "conversation", "", "go on with the conversation of this `KEY`, or begin it")
	flags.StringVar(&f.Replay, "replay", "", "play a transcript `FILE` instead of asking a model")
	flags.StringVar(&f.record, "record", "", "write the model's answers to a transcript `FILE`")
	flags.BoolVar(&f.json, "json", false, "print events as JSON lines instead of the answer")
	a.completeProject(c, &f)
	return c
}

// runArgs tells project and prompt apart.
func (a *app) runArgs(f *runFlags, args []string) (prompt string, err error) {
	f.Path = a.Dir
	switch {
	case len(args) == 2:
		f.Path, prompt = a.path(args[0]), args[1]
	case len(args) == 1 && args[0] != "-" && looksLikePath(a.path(args[0]), args[0]):
		f.Path = a.path(args[0])
	case len(args) == 1:
		prompt = args[0]
	}
	if prompt == "-" {
		const most = 4 << 20
		b, err := io.ReadAll(io.LimitReader(a.In, most+1))
		switch {
		case err != nil:
			return "", fmt.Errorf("read the prompt: %w", err)
		case len(b) > most:
			return "", usage("the prompt is longer than 4 MiB: put the text into a file of the manifest")
		}
		prompt = strings.TrimSpace(string(b))
	}
	return prompt, nil
}

func looksLikePath(abs, arg string) bool {
	if _, err := os.Stat(abs); err == nil {
		return true
	}
	return !strings.ContainsAny(arg, " \n") && (strings.ContainsRune(arg, filepath.Separator) || strings.HasSuffix(arg, ".hcl") || strings.HasSuffix(arg, ".json"))
}

// redraw is how often the clock of a terminal is looked at.
const redraw = 250 * time.Millisecond

// prepared is a run that is ready to start.
type prepared struct {
	harness *berth.Harness
	options berth.RunOptions
	close   func() error
}

func (a *app) prepare(ctx context.Context, f *runFlags, prompt string) (*prepared, error) {
	l, err := a.load(ctx, f.Path, &f.projectFlags)
	if err != nil {
		return nil, err
	}
	r, err := choose.Run(l.Project, f.Run)
	if err != nil {
		return nil, err
	}
	if prompt != "" {
		r.Input = prompt
	}
	if strings.TrimSpace(r.Input) == "" {
		return nil, usage("there is no prompt\nhint: berth run %s \"what the agent should do\", or set input in the run block", f.Path)
	}
	f.Input = r.Input
	if r.Agent.Sandboxed {
		if r.Sandbox, err = choose.Sandbox(l.Project, r, f.Sandbox); err != nil {
			return nil, err
		}
	}
	bound(r, a.host.Policy.MaxBudget)
	h, err := a.harness(f.Path)
	if err != nil {
		return nil, err
	}
	if f.Sandbox != "" && r.Agent.Sandboxed && l.Project.Sandboxes[f.Sandbox] == nil && l.Project.Drivers[f.Sandbox] == nil {
		// A slip on the command line ends here, without a run that could be resumed.
		if _, err := a.catalog.Resolve(ctx, projectDir(f.Path), f.Sandbox, l.Project.RequiredDrivers[f.Sandbox]); err != nil {
			return nil, err
		}
	}
	if err := allowed(l.Project, a.host, h.DriverOf(r.Sandbox)); err != nil {
		return nil, err
	}
	p := &prepared{harness: h, close: func() error { return nil }}
	m, err := a.model(ctx, h, l.Project, r, r.Agent, f)
	if err != nil {
		return nil, err
	}
	p.options = berth.RunOptions{
		Project: l.Project, Run: r, Keep: f.Keep, From: f.From, Use: f.Session, Conversation: f.Conversation,
		ModelOf: func(ctx context.Context, other *spec.Agent) (choose.Choice, error) {
			if other == r.Agent {
				return m, nil
			}
			return a.model(ctx, h, l.Project, r, other, f)
		},
	}
	if f.record != "" {
		file, err := os.OpenFile(a.path(f.record), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil, usage("--record: %s exists already and is left as it is\nhint: name a new file", a.path(f.record))
		}
		if err != nil {
			return nil, fmt.Errorf("record the transcript: %w", err)
		}
		p.close = file.Close
		rec, err := replay.NewRecorder(m.Model, m.Name, file)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		of := p.options.ModelOf
		p.options.ModelOf = func(ctx context.Context, other *spec.Agent) (choose.Choice, error) {
			c, err := of(ctx, other)
			c.Model = rec.Of(c.Model)
			return c, err
		}
	}
	f.Vars = f.Vars || len(f.vars) > 0
	p.options.Note, err = json.Marshal(f)
	return p, err
}

// model makes the model of an agent.
func (a *app) model(ctx context.Context, h *berth.Harness, p *spec.Project, r *spec.Run, of *spec.Agent, f *runFlags) (choose.Choice, error) {
	var none choose.Choice
	if f.Replay == "" {
		return h.Model(ctx, p, r, of, f.Model)
	}
	f.Replay = a.path(f.Replay)
	switch info, err := os.Stat(f.Replay); {
	case errors.Is(err, fs.ErrNotExist):
		return none, usage("--replay: there is no file %s\nhint: berth run --record FILE writes one", f.Replay)
	case err == nil && info.IsDir():
		return none, usage("--replay: %s is a directory\nhint: name the transcript in it", f.Replay)
	}
	t, err := replay.Open(f.Replay)
	if err != nil {
		return none, err
	}
	return choose.Choice{Model: replay.New(t), Name: "replay of " + filepath.Base(f.Replay), Settings: r.Settings.Over(of.Settings)}, nil
}

func (a *app) run(ctx context.Context, f *runFlags, prompt string) error {
	p, err := a.prepare(ctx, f, prompt)
	if err != nil {
		return err
	}
	return a.perform(ctx, f, p, p.harness.Run)
}

// perform runs with Ctrl-C under control, shows the events and prints the answer.
func (a *app) perform(ctx context.Context, f *runFlags, p *prepared, do func(context.Context, berth.RunOptions) (*runner.Result, error)) error {
	shower := show.JSON(a.Out)
	if !f.json {
		width, tty := terminal(a.Err)
		ticks := time.NewTicker(redraw)
		defer ticks.Stop()
		shower = show.Text(a.Err, show.TextOptions{Live: tty, Color: a.color(a.Err), Width: width, Ticks: ticks.C, Asks: a.interactive()})
	}
	p.options.Emit = shower.Event
	if k := a.asker(shower); k != nil {
		p.options.Approve = k.approve
	}
	stop := make(chan struct{})
	p.options.Stop = stop
	ctx, now := context.WithCancelCause(ctx)
	defer now(nil)
	release := onInterrupt(func(n int, _ os.Signal) {
		switch n {
		case 1:
			close(stop)
		case 2:
			now(errors.New("interrupted twice"))
			signal.Reset(os.Interrupt, syscall.SIGTERM) // whoever is still in a hurry ends the process
		}
	})
	res, err := do(ctx, p.options)
	release()
	shower.Close()
	if res == nil {
		return errors.Join(err, p.close())
	}
	if res.Failure != nil {
		err = nil // the outcome tells it
	}
	err = errors.Join(err, p.close())
	end := a.outcome(f, res)
	if err == nil {
		return end
	}
	if ee, ok := errors.AsType[*exitError](end); ok {
		return exit(ee.code, err)
	}
	return err
}

// outcome prints the answer, and how the run ended.
func (a *app) outcome(f *runFlags, res *runner.Result) error {
	if !f.json {
		if res.Output != "" {
			answer := strings.TrimRight(res.Output, "\n")
			if _, tty := terminal(a.Out); tty {
				answer = show.Lines(answer) // a model's text does not steer a terminal
			}
			fmt.Fprintln(a.Out, answer)
		}
		fmt.Fprintf(a.Err, "run %s: %s after %d turns, %s tokens\n", res.RunID, res.Status, res.Turns, show.Count(res.Usage.TotalTokens))
		if res.Failure != nil && res.Status != run.Cancelled {
			fmt.Fprintln(a.Err, "berth:", a.redact(strings.TrimSpace(res.Failure.Message)))
		}
		if res.Hint != "" {
			fmt.Fprintln(a.Err, "hint:", a.redact(res.Hint))
		}
	}
	switch res.Status {
	case run.Completed:
		return nil
	case run.Cancelled:
		return exit(ExitCancelled, nil)
	case run.Paused:
		return exit(ExitPaused, nil)
	case run.Failed, run.MaxTurns, run.Budget, run.Running:
		return exit(ExitIncomplete, nil)
	default:
		return exit(ExitIncomplete, nil)
	}
}

// onInterrupt calls f with 1, 2, … at each Ctrl-C or request to end, until the returned function is called.
func onInterrupt(f func(n int, sig os.Signal)) (release func()) {
	sigs := make(chan os.Signal, 4)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for n := 1; ; n++ {
			select {
			case sig := <-sigs:
				f(n, sig)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(sigs)
		close(done)
	}
}
