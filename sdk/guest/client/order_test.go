// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
)

// marked writes both streams into one text, each line after the letter of its stream.
type marked struct {
	letter byte
	all    *bytes.Buffer
	wrote  *sync.Cond
}

func (m marked) Write(p []byte) (int, error) {
	m.wrote.L.Lock()
	defer m.wrote.L.Unlock()
	for line := range bytes.Lines(p) {
		m.all.WriteByte(m.letter)
		m.all.Write(line)
	}
	m.wrote.Broadcast()
	return len(p), nil
}

// What goes to standard output and to standard error at once arrives in the order in which it was written.
func TestOrderOfStreams(t *testing.T) {
	c := begin(t, nil).connect(t)
	var all bytes.Buffer
	wrote := sync.NewCond(&sync.Mutex{})
	in, feed := io.Pipe()
	const rounds = 300
	var want bytes.Buffer
	go func() {
		for i := range rounds {
			feed.Write([]byte("x\n")) // the command's end is seen by the test
			wrote.L.Lock()
			for all.Len() < (i+1)*6 {
				wrote.Wait()
			}
			wrote.L.Unlock()
		}
		feed.Close()
	}()
	const script = `while read x; do echo 1; echo 2 >&2; read x; echo 3 >&2; echo 4; done`
	for range rounds / 2 {
		want.WriteString("o1\ne2\ne3\no4\n")
	}
	_, err := c.Run(t.Context(), sh(script), driver.Streams{Stdin: in, Stdout: marked{'o', &all, wrote}, Stderr: marked{'e', &all, wrote}})
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != want.String() {
		t.Errorf("another order:\n%.400s", all.String())
	}
}
