// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

func Leaks() suite.Group {
	return suite.Group{
		Name: "leaks", Doc: "what is over is over: no sandbox, process, file, goroutine or memory is left",
		Checks: []suite.Check{
			{Name: "processes", Alone: true, Func: leakProcesses},
			{Name: "goroutines", Alone: true, Func: leakGoroutines},
			{Name: "memory-and-files", Alone: true, Binary: true, Func: leakMemory},
			{Name: "sandboxes", Alone: true, Needs: kit.Needs(driver.LifeList), Func: leakSandboxes},
		},
	}
}

// marked are the processes of this machine with a word in their command line.
func marked(mark string) []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, d := range dirs {
		pid := filepath.Base(filepath.Dir(d))
		if b, err := os.ReadFile(d); err == nil && pid != strconv.Itoa(os.Getpid()) && bytes.Contains(b, []byte(mark)) {
			out = append(out, pid)
		}
	}
	return out
}

func leakProcesses(c *kit.C) {
	box := c.Fresh()
	mark := c.Word("mark")
	up := kit.Seen("up")
	// The shell stays: one that became its last command would not have the mark any more.
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sh", "-c", "echo up; sleep 3600; true", mark}, Detached: true}, driver.Streams{Stdout: up})
	up.Wait(c, run)
	if len(marked(mark)) == 0 {
		c.Skipf("the processes of a sandbox cannot be seen from here")
	}
	c.OK(box.Destroy(c.Ctx()), "destroy")
	if left := marked(mark); len(left) > 0 {
		c.Errorf("after the destroy of a sandbox its processes %v live on", left)
	}
	run.Wait(c)
}

// cycle is a whole life.
func cycle(c *kit.C) {
	box, err := c.Main().Create(c.Ctx(), c.Request())
	c.OK(err, "create")
	c.Sh(box, "echo x > f")
	kit.Get(c, box, "f")
	c.OK(box.Destroy(c.Ctx()), "destroy")
}

// figure is what must not grow by more than most.
type figure struct {
	what string
	most int
	look func() int
}

// looks is how often each figure is looked at before and after.
const looks = 5

// grow wants that figures do not grow over many lives: the least of several looks counts, for what is only let go a
// little later is no leak.
func grow(c *kit.C, figures ...figure) {
	least := func() []int {
		var n []int
		for _, f := range figures {
			n = append(n, f.look())
		}
		for range looks {
			cycle(c)
			for i, f := range figures {
				n[i] = min(n[i], f.look())
			}
		}
		return n
	}
	before := least()
	lives := c.Options().Lives
	for range lives - looks {
		cycle(c)
	}
	after := least()
	for i, f := range figures {
		if after[i]-before[i] > f.most {
			c.Errorf("over %d sandboxes %s grew from %d to %d", lives, f.what, before[i], after[i])
		}
	}
}

func leakGoroutines(c *kit.C) {
	if c.Main().Program() != nil || c.Options().Driver == nil {
		c.Skipf("the driver is another process")
	}
	grow(c, figure{"the number of goroutines", c.Options().Lives / 5, func() int {
		runtime.Gosched()
		return runtime.NumGoroutine()
	}})
}

func leakMemory(c *kit.C) {
	pid := c.Main().PID
	status := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			c.Skipf("the kernel does not tell: %v", err)
		}
		return string(b)
	}
	memory := func() int {
		for line := range strings.Lines(status()) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				n, err := strconv.Atoi(strings.Fields(rest)[0])
				c.OK(err, "read the memory of the driver")
				return n
			}
		}
		c.Skipf("the kernel does not tell the memory of a process")
		return 0
	}
	files := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		c.OK(err, "look at the driver's open files")
		return len(entries)
	}
	grow(c, figure{"the memory of the driver in KiB", 10 << 10, memory}, figure{"the number of the driver's open files", c.Options().Lives / 5, files})
}

func leakSandboxes(c *kit.C) {
	c.OK(c.EndShared(c.Ctx()), "destroy the sandboxes that the checks shared")
	left := slices.DeleteFunc(kit.Found(c, c.Driver(), c.Labels()), c.Kept)
	if len(left) > 0 {
		c.Errorf("after the whole suite there are still %v", left)
	}
}
