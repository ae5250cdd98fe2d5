// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/tree"
)

// members are the living processes of a command's tree, as one scan sees them. Whole is false when there may be more: a
// process that ended under the scan, or has just ended, may have left a child that the scan did not see.
func (t *Table) members(p *Process) (found []int, whole bool) {
	if t.groups != nil && p.group != "" {
		return t.groups.Members(p.group), true
	}
	ps, whole := tree.Scan(t.marks)
	found, ended := t.membersIn(ps, p)
	return found, whole && !ended
}

func (t *Table) membersIn(ps []tree.Process, p *Process) (found []int, ended bool) {
	parents := make(map[int]*tree.Process, len(ps))
	for i := range ps {
		parents[ps[i].PID] = &ps[i]
	}
	mine := t.owner()
	t.mu.Lock()
	leader := 0
	if t.byPID[p.pid] == p {
		leader = p.pid
	}
	t.mu.Unlock()

	verdict := map[int]bool{}
	var in func(q *tree.Process, depth int) bool
	in = func(q *tree.Process, depth int) bool {
		if v, ok := verdict[q.PID]; ok {
			return v
		}
		v := false
		switch {
		case q.PID == leader:
			v = true
		case q.Mark == p.mark:
			v = true
		case mine(q.Mark):
			v = false // another command's, whoever its parent is; the mark of another berth says nothing
		case leader != 0 && q.Session == leader:
			v = true
		case depth < len(ps):
			if up := parents[q.Parent]; up != nil {
				v = in(up, depth+1)
			}
		}
		verdict[q.PID] = v
		return v
	}
	for i := range ps {
		switch {
		case !in(&ps[i], 0):
		case ps[i].Dead:
			ended = true
		default:
			found = append(found, ps[i].PID)
		}
	}
	return found, ended
}

// Descendants are all living processes below this program.
func (t *Table) Descendants() []int {
	ps, _ := tree.Scan(t.marks)
	parents := make(map[int]*tree.Process, len(ps))
	for i := range ps {
		parents[ps[i].PID] = &ps[i]
	}
	self, owned := os.Getpid(), t.owner()
	var found []int
	for i := range ps {
		q := &ps[i]
		mine := owned(q.Mark)
		for up, depth := q, 0; up != nil && depth <= len(ps) && !mine; up, depth = parents[up.Parent], depth+1 {
			mine = up.Parent == self
		}
		if mine && !q.Dead {
			found = append(found, q.PID)
		}
	}
	return found
}

// owner tells whether a mark was given by this table. Another berth, on the machine or inside of a command, gives numbers
// of its own: they start somewhere at random.
func (t *Table) owner() func(mark uint64) bool {
	t.mu.Lock()
	first, last := t.firstMark, t.nextMark
	t.mu.Unlock()
	return func(mark uint64) bool {
		n, ok := tree.Number(mark)
		return ok && n > first && n <= last
	}
}

func killAllOf(pids []int) {
	for _, pid := range pids {
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended meanwhile
	}
}
