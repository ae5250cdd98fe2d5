// SPDX-License-Identifier: Apache-2.0
// Size: the checks of one group, each on its own.

package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

var errEnough = errors.New("the caller has gone")

// lost are the codes of a sandbox that is not there.
var lost = []errs.Code{errs.SandboxUnknown, errs.SandboxGone}

func lifecycle() suite.Group {
	resume, list := needs(driver.LifeResume), needs(driver.LifeList)
	return suite.Group{
		Name: "lifecycle", Doc: "sandboxes are created once, found again, and leave nothing",
		Checks: []suite.Check{
			{Name: "create", Func: create},
			{Name: "create-same-id", Func: createSameID},
			{Name: "create-same-id-at-once", Func: createAtOnce},
			{Name: "create-same-id-in-new-process", Process: true, Needs: resume, Func: createInNewProcess},
			{Name: "create-many", Func: createMany},
			{Name: "create-cancelled", Func: createCancelled},
			{Name: "create-cancelled-at-once", Func: createCancelledAtOnce},
			{Name: "apart", Func: apart},
			{Name: "workspace", Func: workspace},
			{Name: "workspace-mode", Func: workspaceMode},
			{Name: "environment", Func: environment},
			{Name: "environment-of-today", Needs: needs(driver.LifeResume), Func: environmentOfToday},
			{Name: "destroy-again", Func: destroyAgain},
			{Name: "destroy-at-once", Func: destroyAtOnce},
			{Name: "destroy-ends-commands", Func: destroyEndsCommands},
			{Name: "destroyed-is-gone", Func: destroyedIsGone},
			{Name: "destroy-in-new-process", Process: true, Needs: resume, Func: destroyInNewProcess},
			{Name: "unknown-id", Func: unknownID},
			{Name: "empty-id", Func: emptyID},
			{Name: "resume", Needs: resume, Func: resumeHere},
			{Name: "resume-again", Needs: resume, Func: resumeAgain},
			{Name: "resume-in-new-process", Process: true, Needs: resume, Func: resumeInNewProcess},
			{Name: "resume-destroyed", Needs: resume, Func: resumeDestroyed},
			{Name: "resume-destroyed-in-new-process", Process: true, Needs: resume, Func: resumeDestroyedInNewProcess},
			{Name: "resume-makes-nothing", Process: true, Needs: needs(driver.LifeResume, driver.LifeList), Proves: resume, Func: resumeMakesNothing},
			{Name: "resume-nonsense", Needs: resume, Func: resumeNonsense},
			{Name: "resume-other-version", Needs: resume, Func: resumeOtherVersion},
			{Name: "state-size", Func: stateSize},
			{Name: "state-holds-no-secret", Func: stateSecrets},
			{Name: "inspect", Func: inspect},
			{Name: "labels", Needs: list, Func: labels},
			{Name: "list-all-labels", Needs: list, Func: listAllLabels},
			{Name: "list-nothing", Needs: list, Func: listNothing},
			{Name: "list-destroyed", Needs: list, Func: listDestroyed},
			{Name: "list-in-new-process", Process: true, Needs: list, Func: listInNewProcess},
			{Name: "stop", Needs: needs(driver.LifeStop), Func: stop},
			{Name: "stop-again", Needs: needs(driver.LifeStop), Func: stopAgain},
			{Name: "stop-keeps-workspace", Needs: needs(driver.LifeStop, driver.LifeResume), Func: stopKeeps},
			{Name: "stop-keeps-workspace-in-new-process", Process: true, Needs: needs(driver.LifeStop, driver.LifeResume), Func: stopKeepsInNewProcess},
			{Name: "stop-without-workspace", Needs: needs(driver.LifeStop, driver.LifeResume), Proves: needs(driver.LifeStop), Func: stopForgets},
			{Name: "stopped-runs-nothing", Needs: needs(driver.LifeStop), Func: stoppedRunsNothing},
			{Name: "stopped-is-destroyed", Needs: needs(driver.LifeStop), Func: stoppedIsDestroyed},
			{Name: "pause", Needs: needs(driver.LifePause), Func: pause},
			{Name: "deadline-of-create", Needs: needs(driver.LifeDeadline), Func: deadlineOfCreate},
			{Name: "deadline-moves", Needs: needs(driver.LifeDeadline), Func: deadlineMoves},
			{Name: "deadline-only-moves-when-told", Needs: needs(driver.LifeDeadline), Func: deadlineStays},
			{Name: "watch-ends-with-caller", Needs: needs(driver.LifeWatch), Func: watchEnds},
			{Name: "watch-ends-with-sandbox", Needs: needs(driver.LifeWatch), Func: watchDestroyed},
			{Name: "drain-parks", Process: true, Needs: resume, Func: drainParks},
			{Name: "drain-refuses-work", Process: true, Func: drainRefuses},
			{Name: "network-none", Needs: needs(driver.NetPolicy), Tools: []string{"ps"}, Func: networkNone},
			{Name: "network-nonsense", Func: networkNonsense},
			{Name: "grants", Needs: needs(driver.PathGrants), Func: grants},
			{Name: "grants-read-only", Needs: needs(driver.PathGrants), Func: grantsReadOnly},
		},
	}
}

func create(c *C) {
	box := c.Fresh()
	if st := box.State(); len(st.Data) == 0 {
		c.Errorf("the state is empty: nothing could find the sandbox again")
	} else if st.Version != c.Main().Desc.StateVersion {
		c.Errorf("the state has version %d, the description says %d", st.Version, c.Main().Desc.StateVersion)
	}
	info := box.Info()
	if info.SandboxID != box.ID() || info.Status != driver.StatusRunning || info.Root != c.Options().Workspace {
		c.Errorf("info of a new sandbox: id %q, status %q, root %q", info.SandboxID, info.Status, info.Root)
	}
	if len(list(c, box, ".", driver.ListOptions{})) > 0 {
		c.Errorf("the workspace of a fresh sandbox is not empty")
	}
}

func createSameID(c *C) {
	req := c.Request()
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create")
	c.Destroyed(box)
	put(c, box, "kept", []byte("kept"))
	for range c.Options().Repeat {
		again, err := c.Main().Create(c.Ctx(), req)
		c.OK(err, "create with the same id")
		c.Same("a file of the first create, seen by a later one", get(c, again, "kept"), []byte("kept"))
	}
}

func createAtOnce(c *C) {
	req := c.Request()
	boxes := make([]*rpc.Sandbox, 4)
	var all sync.WaitGroup
	for i := range boxes {
		all.Go(func() {
			r := *req
			var err error
			if boxes[i], err = c.Main().Create(c.Ctx(), &r); err != nil {
				c.Errorf("create %d of 4 with the same id at once: %v", i, err)
			}
		})
	}
	all.Wait()
	for i, box := range boxes {
		if box == nil {
			return
		}
		if i == 0 {
			c.Destroyed(box)
			put(c, box, "kept", []byte("kept"))
			continue
		}
		c.Same("a file of the first create, seen by the one at the same time", get(c, box, "kept"), []byte("kept"))
	}
}

func createInNewProcess(c *C) {
	req := c.Request()
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create")
	c.Destroyed(box)
	put(c, box, "kept", []byte("kept"))
	again, err := c.Spawn().Create(c.Ctx(), req)
	c.OK(err, "create with the same id in another driver process")
	c.Same("a file of the first create", get(c, again, "kept"), []byte("kept"))
}

func createMany(c *C) {
	var all sync.WaitGroup
	boxes := make([]*rpc.Sandbox, 6)
	for i := range boxes {
		all.Go(func() {
			var err error
			if boxes[i], err = c.Main().Create(c.Ctx(), c.Request()); err != nil {
				c.Errorf("create %d of %d at once: %v", i, len(boxes), err)
			}
		})
	}
	all.Wait()
	for i, box := range boxes {
		if box != nil {
			c.Destroyed(box)
			if got := c.Sh(box, fmt.Sprintf("echo %d", i)); got != fmt.Sprintf("%d\n", i) {
				c.Errorf("sandbox %d said %q", i, got)
			}
		}
	}
}

// abandoned wants that a create which was given up left nothing, or something that can be found.
func abandoned(c *C, req *driver.CreateRequest) {
	if !c.Claims(driver.LifeList) {
		return
	}
	// What is left may still be going.
	c.Eventually("what a cancelled create left is gone, or can be destroyed", func() bool {
		ids := found(c, c.Driver(), map[string]string{"abandoned": req.Labels["abandoned"]})
		return len(ids) == 0 || slices.Equal(ids, []string{req.SandboxID})
	})
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create after a create with the same id was cancelled")
	c.Sh(box, "true")
	c.OK(box.Destroy(c.Ctx()), "destroy")
	if ids := found(c, c.Driver(), map[string]string{"abandoned": req.Labels["abandoned"]}); len(ids) > 0 {
		c.Errorf("after a cancelled create, a second one and a destroy, %v are left", ids)
	}
}

func createCancelled(c *C) {
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		req := c.Request()
		req.Labels["abandoned"] = c.Word("a")
		ctx, cancel := context.WithTimeoutCause(c.Ctx(), after, errEnough)
		box, err := c.Main().Create(ctx, req)
		cancel()
		if err != nil {
			c.Code(err, "a create that was cancelled", errs.Canceled)
			abandoned(c, req)
			continue
		}
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
}

func createCancelledAtOnce(c *C) {
	req := c.Request()
	req.Labels["abandoned"] = c.Word("a")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	cancel(errEnough)
	_, err := c.Main().Create(ctx, req)
	c.Code(err, "a create that was cancelled before", errs.Canceled)
	abandoned(c, req)
}

func apart(c *C) {
	a, b := c.Fresh(), c.Fresh()
	put(c, a, "mine", []byte("a"))
	absent(c, b, "mine")
	word := c.Word("apart")
	c.Sh(a, "echo x > /tmp/"+word)
	if out := c.Exec(b, "sh", "-c", "cat /tmp/"+word); out.Exit.Code == 0 {
		c.Errorf("a file in /tmp of one sandbox is in another")
	}
}

func workspace(c *C) {
	box, root := c.Box(), c.Options().Workspace
	if got := strings.TrimSpace(c.Sh(box, "pwd")); got != root {
		c.Errorf("commands start in %q, not in the workspace %q", got, root)
	}
	name := c.Word("root")
	put(c, box, root+"/"+name, []byte("x"))
	c.Same("a file by its relative path", get(c, box, name), []byte("x"))
	if info := stat(c, box, root); info.Type != driver.TypeDirectory {
		c.Errorf("the workspace root is no directory but %v", info.Type)
	}
}

func workspaceMode(c *C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Workspace.Mode = 0o750 })
	if got := stat(c, box, ".").Mode & 0o777; got != 0o750 {
		c.Errorf("the workspace has mode %04o, not 0750", got)
	}
}

func environment(c *C) {
	box := c.Box()
	if got := c.Sh(box, `echo "$BERTH_PLAIN/$`+suite.CanaryName+`"`); got != "plain/"+c.Canary+"\n" {
		c.Errorf("environment and secret environment of the sandbox, in a command: %q", strings.ReplaceAll(got, c.Canary, "(the canary)"))
	}
}

func environmentOfToday(c *C) {
	box := c.Fresh()
	r := c.Resumption(box)
	r.Env = map[string]string{"BERTH_NEW": "new", "BERTH_PLAIN": "changed"}
	r.SecretEnv = map[string]string{"BERTH_SECRET": "hidden"}
	again, err := c.Main().Resume(c.Ctx(), r)
	c.OK(err, "resume")
	if got := c.Sh(again, `echo "$BERTH_NEW/$BERTH_SECRET/$BERTH_PLAIN"`); got != "new/hidden/changed\n" {
		c.Errorf("after a resume with another environment a command has %q, want that of the resume", got)
	}
}

func destroyAgain(c *C) {
	box := c.Fresh()
	for i := range c.Options().Repeat {
		c.OK(box.Destroy(c.Ctx()), "destroy, time %d", i+1)
	}
}

func destroyAtOnce(c *C) {
	box := c.Fresh()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := box.Destroy(c.Ctx()); err != nil {
				c.Errorf("one of four destroys at once: %v", err)
			}
		})
	}
	all.Wait()
}

func destroyEndsCommands(c *C) {
	box := c.Fresh()
	r := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	c.OK(box.Destroy(c.Ctx()), "destroy")
	r.wait(c)
	if r.err == nil && r.out.Exit.Code == 0 {
		c.Errorf("a command of 3600 s ended with exit 0 when its sandbox was destroyed")
	}
}

func destroyedIsGone(c *C) {
	box := c.Fresh()
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a destroyed sandbox", lost...)
	_, err = box.Stat(c.Ctx(), []string{"."}, driver.StatOptions{})
	c.Code(err, "stat in a destroyed sandbox", lost...)
	_, err = box.Inspect(c.Ctx())
	c.Code(err, "inspect a destroyed sandbox", lost...)
}

func destroyInNewProcess(c *C) {
	box := c.Fresh()
	p := c.Spawn()
	c.OK(p.Driver.Handle(box.ID(), box.State()).Destroy(c.Ctx()), "destroy by state in another driver process")
	_, err := c.Spawn().Resume(c.Ctx(), c.Resumption(box))
	c.Code(err, "resume after another process destroyed the sandbox", errs.SandboxGone)
}

func unknownID(c *C) {
	box := c.Driver().Handle(ulid.Make().String(), driver.State{})
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a sandbox that was never made", errs.SandboxUnknown)
	_, err = box.Stat(c.Ctx(), []string{"."}, driver.StatOptions{})
	c.Code(err, "stat in a sandbox that was never made", errs.SandboxUnknown)
	_, err = box.Inspect(c.Ctx())
	c.Code(err, "inspect a sandbox that was never made", errs.SandboxUnknown)
}

func emptyID(c *C) {
	req := c.Request()
	req.SandboxID = ""
	_, err := c.Main().Create(c.Ctx(), req)
	c.Code(err, "create without an id", errs.InvalidArgument)
}

func resumeHere(c *C) {
	box := c.Fresh()
	put(c, box, "kept", []byte("kept"))
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	if !again.WorkspacePreserved() {
		c.Errorf("a resumed sandbox does not say that it holds its workspace: it would be filled again")
	}
	c.Same("a file of before", get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
}

func resumeAgain(c *C) {
	box := c.Fresh()
	put(c, box, "kept", []byte("kept"))
	for range c.Options().Repeat {
		again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
		c.OK(err, "resume")
		c.Same("a file of before", get(c, again, "kept"), []byte("kept"))
	}
	c.Same("a file of before, by the first handle", get(c, box, "kept"), []byte("kept"))
}

func resumeInNewProcess(c *C) {
	box := c.Fresh()
	put(c, box, "kept", []byte("kept"))
	again, err := c.Spawn().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume in another driver process")
	if !again.WorkspacePreserved() {
		c.Errorf("a resumed sandbox does not say that it holds its workspace")
	}
	c.Same("a file of before", get(c, again, "kept"), []byte("kept"))
	put(c, again, "new", []byte("new"))
	if got := c.Sh(again, "cat new"); got != "new" {
		c.Errorf("a command in the resumed sandbox read %q", got)
	}
}

func resumeDestroyed(c *C) {
	box := c.Fresh()
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Main().Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox", errs.SandboxGone)
}

func resumeDestroyedInNewProcess(c *C) {
	box := c.Fresh()
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Spawn().Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox in another driver process", errs.SandboxGone)
}

func resumeMakesNothing(c *C) {
	word := c.Word("none")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["nothing"] = word })
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	p := c.Spawn()
	_, err := p.Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox", errs.SandboxGone)
	if ids := found(c, p.Driver, map[string]string{"nothing": word}); len(ids) > 0 {
		c.Errorf("a resume that failed made a sandbox: %v", ids)
	}
}

func resumeNonsense(c *C) {
	for _, data := range []string{"", "nonsense", "\x00\xff", `{"id":7}`, "{}", strings.Repeat("x", 70<<10)} {
		r := &driver.ResumeRequest{SandboxID: ulid.Make().String(), State: driver.State{Version: c.Main().Desc.StateVersion, Data: []byte(data)}}
		box, err := c.Main().Resume(c.Ctx(), r)
		if err == nil {
			c.Errorf("a state of %q was resumed", data[:min(20, len(data))])
			c.OK(box.Destroy(c.Ctx()), "destroy")
			continue
		}
		c.Code(err, fmt.Sprintf("resume a state of %.20q", data), errs.InvalidArgument, errs.SandboxGone, errs.DriverIncompatible)
	}
}

func resumeOtherVersion(c *C) {
	box := c.Fresh()
	r := c.Resumption(box)
	r.State.Version = 9999
	_, err := c.Main().Resume(c.Ctx(), r)
	c.Code(err, "resume a state of a later version", errs.DriverIncompatible)
}

func stateSize(c *C) {
	const most = 64 << 10
	box := c.Fresh(func(r *driver.CreateRequest) {
		for i := range 64 {
			r.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("l", 60)
			r.Env[fmt.Sprintf("VARIABLE_%d", i)] = strings.Repeat("v", 1000)
		}
	})
	if n := len(box.State().Data); n > most {
		c.Errorf("the state has %d bytes, more than %d", n, most)
	}
}

func stateSecrets(c *C) {
	box := c.Fresh()
	c.Command(box, &driver.Command{Argv: []string{"true"}, SecretEnv: map[string]string{"ANOTHER": c.Canary}}, nil)
	st := box.State()
	c.NoSecret("the state", string(st.Data))
	for k, v := range st.Display {
		c.NoSecret("the state's fact "+k, v)
	}
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	c.NoSecret("what inspect gives", fmt.Sprint(info))
}

func inspect(c *C) {
	box := c.Fresh()
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.SandboxID != box.ID() || info.Status != driver.StatusRunning || info.Root != c.Options().Workspace || info.Created.IsZero() {
		c.Errorf("inspect: id %q, status %q, root %q, created %v", info.SandboxID, info.Status, info.Root, info.Created)
	}
	for k, v := range c.Labels() {
		if info.Labels[k] != v {
			c.Errorf("inspect: label %s is %q, not %q", k, info.Labels[k], v)
		}
	}
}

func labels(c *C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"], r.Labels["odd"] = word, "ä /:=,\" b" })
	c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word + "x" })
	if ids := found(c, c.Driver(), map[string]string{"one": word}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list by a label gives %v, want %s", ids, box.ID())
	}
	if ids := found(c, c.Driver(), map[string]string{"one": word, "odd": "ä /:=,\" b"}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list by a label with odd characters gives %v, want %s", ids, box.ID())
	}
}

func listAllLabels(c *C) {
	word := c.Word("label")
	c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := found(c, c.Driver(), map[string]string{"one": word, "two": "x"}); len(ids) > 0 {
		c.Errorf("list by two labels gives %v, which have only one of them", ids)
	}
}

func listNothing(c *C) {
	if ids := found(c, c.Driver(), map[string]string{"nobody-has": c.Word("it")}); len(ids) > 0 {
		c.Errorf("list by a label that no sandbox has gives %v", ids)
	}
}

func listDestroyed(c *C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := found(c, c.Driver(), map[string]string{"one": word}); len(ids) != 1 {
		c.Errorf("list gives %v, want %s", ids, box.ID())
	}
	c.OK(box.Destroy(c.Ctx()), "destroy")
	for info, err := range c.Driver().List(c.Ctx(), map[string]string{"one": word}) {
		c.OK(err, "list")
		if info.Status != driver.StatusGone {
			c.Errorf("list gives a destroyed sandbox with status %q", info.Status)
		}
	}
}

func listInNewProcess(c *C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := found(c, c.Spawn().Driver, map[string]string{"one": word}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list in another driver process gives %v, want %s: what a core lost could not be found", ids, box.ID())
	}
}

func stop(c *C) {
	box := c.Fresh()
	r := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}, Detached: true}, driver.Streams{})
	c.OK(box.Stop(c.Ctx(), true), "stop")
	r.wait(c)
	if r.err == nil && r.out.Exit.Code == 0 {
		c.Errorf("a command of 3600 s ended with exit 0 when its sandbox was stopped")
	}
	if r.err == nil && !r.out.Exit.KilledByStop {
		c.Errorf("the exit of a command that the stop ended does not say so: %+v", r.out.Exit)
	}
}

func stopAgain(c *C) {
	box := c.Fresh()
	for i := range c.Options().Repeat {
		err := box.Stop(c.Ctx(), true)
		if err != nil && i > 0 && slices.Contains(append(lost, errs.SandboxNotReady), errs.CodeOf(err)) {
			continue // it says that the sandbox is not running, which is what was wanted
		}
		c.OK(err, "stop, time %d", i+1)
	}
}

func stopKeeps(c *C) { stopAndResume(c, c.Main()) }

func stopKeepsInNewProcess(c *C) { stopAndResume(c, c.Spawn()) }

func stopAndResume(c *C, p *suite.Process) {
	box := c.Fresh()
	put(c, box, "kept", []byte("kept"))
	c.Sh(box, "mkdir d; echo more > d/more")
	c.OK(box.Stop(c.Ctx(), true), "stop")
	again, err := p.Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a stopped sandbox")
	if !again.WorkspacePreserved() {
		c.Errorf("a sandbox that was stopped and resumed does not say that it holds its workspace")
	}
	if again.Reattached() {
		c.Errorf("a sandbox that was stopped and resumed says that its processes are still there")
	}
	c.Same("a file of before the stop", get(c, again, "kept"), []byte("kept"))
	if got := c.Sh(again, "cat d/more"); got != "more\n" {
		c.Errorf("a file that a command made before the stop: %q", got)
	}
}

func stopForgets(c *C) {
	box := c.Fresh()
	put(c, box, "lost", []byte("lost"))
	c.OK(box.Stop(c.Ctx(), false), "stop")
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	if errs.CodeOf(err) == errs.SandboxGone {
		return
	}
	c.OK(err, "resume")
	if _, err := statErr(c, again, "lost", false); err != nil && again.WorkspacePreserved() {
		c.Errorf("a sandbox that was stopped without its workspace says that it holds it")
	}
}

func stoppedRunsNothing(c *C) {
	box := c.Fresh()
	c.OK(box.Stop(c.Ctx(), true), "stop")
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a stopped sandbox", append(lost, errs.SandboxNotReady)...)
}

func stoppedIsDestroyed(c *C) {
	box := c.Fresh()
	c.OK(box.Stop(c.Ctx(), true), "stop")
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy a stopped sandbox")
	if c.Claims(driver.LifeResume) {
		_, err := c.Main().Resume(c.Ctx(), r)
		c.Code(err, "resume after stop and destroy", errs.SandboxGone)
	}
}

func pause(c *C) {
	box := c.Fresh()
	put(c, box, "kept", []byte("kept"))
	c.OK(box.Pause(c.Ctx()), "pause")
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.Status != driver.StatusPaused {
		c.Errorf("a paused sandbox has status %q", info.Status)
	}
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a paused sandbox")
	c.Same("a file of before the pause", get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
	info, err = again.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.Status != driver.StatusRunning {
		c.Errorf("a sandbox that was paused and resumed has status %q", info.Status)
	}
}

// near says whether two times are the same for a vendor, who counts in seconds.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }

func deadlineOfCreate(c *C) {
	began := time.Now()
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = hour })
	if d := box.State().Deadline; d.Before(began.Add(hour-time.Minute)) || d.After(time.Now().Add(hour+time.Minute)) {
		c.Errorf("a sandbox that may live for an hour from %v has the deadline %v", began, d)
	}
}

func deadlineMoves(c *C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = hour })
	want := time.Now().Add(2 * hour).Truncate(time.Second)
	got, err := box.ExtendDeadline(c.Ctx(), want)
	c.OK(err, "extend the deadline")
	if !near(got, want) {
		c.Errorf("the deadline that holds is %v, want %v", got, want)
	}
	if d := box.State().Deadline; !near(d, want) {
		c.Errorf("the state's deadline is %v, want %v", d, want)
	}
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if !near(info.Deadline, want) {
		c.Errorf("inspect gives the deadline %v, want %v", info.Deadline, want)
	}
}

func deadlineStays(c *C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = hour })
	put(c, box, "f", []byte("f"))
	before, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	get(c, box, "f")
	c.Sh(box, "true")
	list(c, box, ".", driver.ListOptions{})
	after, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if !after.Deadline.Equal(before.Deadline) {
		c.Errorf("reading, listing and running moved the deadline from %v to %v", before.Deadline, after.Deadline)
	}
}

func watchEnds(c *C) {
	box := c.Fresh()
	ctx, cancel := context.WithCancelCause(c.Ctx())
	done := make(chan error, 1)
	go func() { done <- box.Watch(ctx, func(driver.Event) {}) }()
	cancel(errEnough)
	select {
	case err := <-done:
		if err != nil {
			c.Code(err, "a watch whose caller has gone", errs.Canceled)
		}
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its caller has gone")
	}
	c.Sh(box, "true")
}

func watchDestroyed(c *C) {
	box := c.Fresh()
	done := make(chan error, 1)
	go func() { done <- box.Watch(c.Ctx(), func(driver.Event) {}) }()
	c.Sh(box, "true")
	c.OK(box.Destroy(c.Ctx()), "destroy")
	select {
	case <-done: //nolint:errcheck // only that it has ended counts
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its sandbox was destroyed")
	}
}

func drainParks(c *C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	put(c, box, "kept", []byte("kept"))
	told := map[string]string{}
	c.OK(p.Driver.Drain(c.Ctx(), driver.OrphanPark, func(r driver.DrainResult) {
		if r.Err != nil {
			c.Errorf("drain of %s: %v", r.SandboxID, r.Err)
		}
		told[r.SandboxID] = r.Outcome
	}), "drain")
	if told[box.ID()] != "parked" {
		c.Errorf("drain told %q of the sandbox, not parked", told[box.ID()])
	}
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a parked sandbox in another driver process")
	c.Same("a file of before", get(c, again, "kept"), []byte("kept"))
}

func drainRefuses(c *C) {
	p := c.Spawn()
	c.OK(p.Driver.Drain(c.Ctx(), driver.OrphanPark, func(driver.DrainResult) {}), "drain")
	_, err := p.Create(c.Ctx(), c.Request())
	c.Code(err, "create in a driver that was drained", errs.SandboxNotReady)
}

func networkNone(c *C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Network.Mode = "none" })
	var devices []string
	for line := range strings.Lines(c.Sh(box, "cat /proc/net/dev")) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "lo" {
			devices = append(devices, name)
		}
	}
	// Without a network of its own a sandbox may see the host's devices; then its sockets have to be refused.
	if len(devices) > 0 {
		out := c.Exec(box, "sh", "-c", `command -v bash >/dev/null || exit 77; bash -c 'exec 3<>/dev/tcp/127.0.0.1/9' 2>&1`)
		if out.Exit.Code == 77 {
			c.Skipf("the sandbox has the devices %v and no bash to try a socket with", devices)
		}
		if text := string(out.Stdout); out.Exit.Code == 0 || strings.Contains(text, "refused") {
			c.Errorf("with network none there are %v and sockets work: %s", devices, text)
		}
	}
}

func networkNonsense(c *C) {
	req := c.Request()
	req.Network.Mode = "no-such-mode"
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create with a network mode that nobody knows", errs.Unsupported, errs.InvalidArgument, errs.ConfigInvalid)
}
