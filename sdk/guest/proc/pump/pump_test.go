// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pump_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/output"
	"github.com/berth-dev/berth/sdk/guest/proc/pump"
)

// However a process writes, and whatever rests it makes, everything comes: in order, before the next is written, and the
// end too.
func TestPump(t *testing.T) {
	for _, room := range []int{64 << 10, 1 << 20} {
		var pair [2]int
		if err := unix.Pipe2(pair[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(pair[0], true); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(pair[0]), unix.F_SETPIPE_SZ, room); err != nil {
			t.Fatal(err)
		}
		to := os.NewFile(uintptr(pair[1]), "process")
		out := output.New(1<<20, time.Minute)
		r := out.Reader(0)
		w, err := pump.Pipes(out, pump.Pipe{Stream: output.Stdout, FD: pair[0], Room: room})
		if err != nil {
			t.Fatal(err)
		}
		s := w.Streams()[0]
		ended := make(chan struct{})
		go func() {
			w.Run()
			out.Close()
			close(ended)
		}()

		var want, got []byte
		buf := make([]byte, 300<<10)
		next := func() bool {
			err := r.Wait(t.Context())
			if errors.Is(err, io.EOF) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			n, _, _ := r.Next(buf)
			got = append(got, buf[:n]...)
			return true
		}
		rnd := rand.New(rand.NewPCG(1, uint64(room)))
		content := make([]byte, 3<<20)
		rand.NewChaCha8([32]byte{3}).Read(content)
		for round := range 12 {
			piece, burst := 4096, content[:1+rnd.IntN(len(content))]
			if round%3 == 2 {
				piece, burst = 7, content[:200+rnd.IntN(2000)]
			}
			want = append(want, burst...)
			wrote := make(chan error, 1)
			go func() {
				for b := burst; len(b) > 0; b = b[min(piece, len(b)):] {
					if _, err := to.Write(b[:min(piece, len(b))]); err != nil {
						wrote <- err
						return
					}
				}
				wrote <- nil
			}()
			for len(got) < len(want) {
				next()
			}
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			if n := s.Pending(); n != 0 {
				t.Errorf("%d bytes are pending", n)
			}
		}
		to.Close()
		for next() {
		}
		<-ended
		if !bytes.Equal(got, want) || s.Drained() != int64(len(want)) || s.Pending() != 0 {
			t.Errorf("%d of %d bytes, or others; %d were read", len(got), len(want), s.Drained())
		}
		r.Close()
	}
}
