// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

// overVendor is how many milliseconds a driver may add to what its vendor takes for the same.
const overVendor = 2

// hostedBench is the rows of a driver whose sandboxes are a vendor's: beside them the same with the vendor's API alone, over
// the same fake of it on this machine. What both take is the fake's and says nothing; the difference is the driver's.
type hostedBench struct {
	*bench
	name    string
	process settings
	sandbox settings
	guest   []byte // what a driver brings into a sandbox
	open    func(*hostedBench) (byHand, error)
}

// byHand is a sandbox that was made with a vendor's API alone, with the guest's program uploaded and one program run.
type byHand interface {
	run() error                           // the program true
	write(path string, text []byte) error // a file
	read(path string) (int64, error)      // all of a file
	end() error                           // the sandbox's
}

// withFake makes a measurement over a fake vendor. Where there is none, that is said.
func withFake(name string, open func(*hostedBench) (byHand, error), measure func(*hostedBench) error) func(*bench) error {
	return func(b *bench) error {
		guest, err := embed.Guest("linux", runtime.GOARCH)
		if err != nil {
			return err
		}
		said, stop, err := fakeVendor(filepath.Join(b.bin, "fake-"+name))
		if err != nil {
			b.notes = append(b.notes, "not measured: "+err.Error())
			return nil
		}
		env, err := b.environment()
		if err != nil {
			return errors.Join(err, stop())
		}
		env.project.Drivers = map[string]*spec.DriverProcess{name: {Label: name, Config: said.Process}}
		err = measure(&hostedBench{bench: b, name: name, process: said.Process, sandbox: said.Sandbox, guest: guest, open: open})
		return errors.Join(err, stop())
	}
}

// fakeSettings is what a fake says when it serves.
type fakeSettings struct{ Process, Sandbox settings }

func fakeVendor(program string) (said fakeSettings, stop func() error, err error) {
	cmd := exec.Command(program) //nolint:noctx // it ends with its standard input
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return said, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return said, nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		return said, nil, fmt.Errorf("%s: %w", program, errors.Join(err, stop()))
	}
	return said, stop, nil
}

func (h *hostedBench) session() (*session.Session, error) {
	return h.openIn(&spec.Sandbox{Driver: h.name, Config: h.sandbox}, nil)
}

// text of the settings that a fake gave.
func (s settings) text(name string) string {
	t, _ := s[name].(string) // a fake that does not say it is found out at once
	return t
}

// life is a sandbox's making and its end.
func (h *hostedBench) life() error {
	var s *session.Session
	var v byHand
	t, err := h.rounds(10, func() (err error) {
		s, err = h.session()
		return err
	}, func() error { return s.Sandbox.Destroy(h.ctx) }, func() (err error) {
		v, err = h.open(h)
		return err
	}, func() error { return v.end() }, func() error { return h.closeSession(s) })
	if err != nil {
		return err
	}
	h.add(figure{name: "create_empty/" + h.name, product: t[0], floor: t[2], floorIs: "create, upload of the guest, run true/api", note: h.rss()})
	h.add(figure{name: "destroy_empty/" + h.name, product: t[1], floor: t[3], floorIs: "removal/api", over: overVendor})
	return nil
}

// within is commands and files in a sandbox that is there.
func (h *hostedBench) within() error {
	s, err := h.session()
	if err != nil {
		return err
	}
	defer h.closeSession(s) //nolint:errcheck // the figures are taken
	v, err := h.open(h)
	if err != nil {
		return err
	}
	defer v.end() //nolint:errcheck // likewise
	text, made := bytes.Repeat([]byte("0123456789abcde\n"), 64), 0
	buf := make([]byte, 1<<20)
	small := func() string { return fmt.Sprintf("small%d", made) }
	t, err := h.rounds(50,
		func() error { return runIn(h.ctx, s, io.Discard, "true") }, v.run,
		func() error {
			made++
			_, err := s.Write(h.ctx, small(), driver.WriteOptions{}, bytes.NewReader(text))
			return err
		}, func() error { return v.write("/tmp/"+small(), text) },
		func() error { return readAll(h.ctx, s, small(), int64(len(text)), buf) }, func() error {
			n, err := v.read("/tmp/" + small())
			if err == nil && n != int64(len(text)) {
				err = fmt.Errorf("%d bytes read of %d", n, len(text))
			}
			return err
		})
	if err != nil {
		return err
	}
	for i, what := range []struct{ name, floor string }{{"exec_true", "run true"}, {"create1k", "upload of 1 KiB"}, {"read1k", "download of 1 KiB"}} {
		h.add(figure{name: what.name + "/" + h.name, product: t[2*i], floor: t[2*i+1], floorIs: what.floor + "/api", over: overVendor})
	}
	return nil
}
