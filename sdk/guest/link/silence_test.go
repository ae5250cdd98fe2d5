// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// mute is a host's hold on a shared stream. Its host dies without a trace.
type mute struct {
	io.ReadWriteCloser
	dead *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.ReadWriteCloser.Write(p)
}

// A shared stream does not end with its host: that a host lives is heard, and that it died is noticed in time.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 6 * time.Second
		host, guest := net.Pipe()
		attached := make(chan bool, 100)
		a, err := link.NewAcceptor(link.AcceptorOptions{
			Key: key, Handle: echo, Silence: silence, Info: func() []byte { return []byte("6s") }, Attached: func(now bool) { attached <- now },
		})
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- a.Serve(guest, true) }()
		var dead atomic.Bool
		p, err := link.Connect(t.Context(), link.Options{
			Key: key,
			Dial: func(context.Context) (io.ReadWriteCloser, error) {
				if dead.Load() {
					return nil, errs.New(errs.SandboxGone, "this host is gone")
				}
				return mute{host, &dead}, nil
			},
			Silence: func(info []byte) time.Duration {
				d, err := time.ParseDuration(string(info))
				if err != nil {
					t.Error(err)
				}
				return d
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := <-attached; !now || len(attached) > 0 {
			t.Fatalf("a host that lives was taken as gone: %v, and %d more", now, len(attached))
		}

		dead.Store(true)
		died := time.Now()
		if <-attached {
			t.Fatal("it came again")
		}
		if took := time.Since(died); took > silence*3/2 {
			t.Errorf("noticed after %v", took)
		}
		host.Close()
		<-p.Done()
		<-over
	})
}
