// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"bytes"
	"os"
	"strconv"
)

// victimScore is added to the badness of commands: half of the memory that they may use. So where memory ends, the
// kernel takes a command and not this program, with which every command would go, also when it is the larger one.
const victimScore = 500

// victims makes commands inherit a higher oom_score_adj. It is set on this program for the moment of a fork, because a
// process of another user could not be changed later. Setting it back needs no capability: the score does not fall below
// what a privileged process chose last. Everything here is a wish: where /proc cannot be written, nothing changes.
type victims struct {
	file        *os.File // nil = no wish
	own, theirs []byte
}

func newVictims() *victims {
	const file = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(file)
	if err != nil {
		return &victims{}
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(own)))
	if err != nil {
		return &victims{}
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return &victims{}
	}
	return &victims{file: f, own: own, theirs: strconv.AppendInt(nil, int64(min(score+victimScore, 1000)), 10)}
}

func (v *victims) raise()   { v.set(v.theirs) }
func (v *victims) restore() { v.set(v.own) }

func (v *victims) set(text []byte) {
	if v.file != nil {
		v.file.WriteAt(text, 0) //nolint:errcheck // a wish
	}
}

func (v *victims) close() {
	if v.file != nil {
		v.file.Close()
	}
}
