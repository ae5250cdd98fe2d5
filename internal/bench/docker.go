// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// dockerBench is the rows of the docker driver: beside them the same engine, with the same image, through its API and
// through the docker command.
type dockerBench struct {
	*bench
	e *engine
}

// settings is a configuration body that no file holds.
type settings map[string]any

// Encode gives it to a driver.
func (s settings) Encode() (spec.DriverValue, error) {
	b, err := json.Marshal(map[string]any(s))
	return spec.DriverValue{JSON: b}, err
}

// Pos is nowhere.
func (settings) Pos() spec.Pos { return spec.Pos{} }

// withEngine makes a measurement of what needs a container engine. Where there is none, that is said.
func withEngine(measure func(*dockerBench) error) func(*bench) error {
	return func(b *bench) error {
		e, err := openEngine(b.ctx)
		if err != nil {
			b.notes = append(b.notes, "not measured: "+err.Error())
			return nil
		}
		defer e.close()
		env, err := b.environment()
		if err != nil {
			return err
		}
		env.project.Drivers = map[string]*spec.DriverProcess{"docker": {Label: "docker", Config: settings{"host": e.host}}}
		return measure(&dockerBench{b, e})
	}
}

func (d *dockerBench) openOn(network string) (*session.Session, error) {
	return d.openIn(&spec.Sandbox{Driver: "docker", Config: settings{"image": d.e.image, "pull": "never", "network": network, "guest": "required"}}, nil)
}

// cli gives a measurement of the docker command; nil where there is none.
func (d *dockerBench) cli(f func() error) func() error {
	if d.e.cli == "" {
		return nil
	}
	return f
}

// life is a sandbox's making and its end.
func (d *dockerBench) life() error {
	var s *session.Session
	var id, byCommand string
	t, err := d.rounds(10, func() (err error) {
		s, err = d.openOn("bridge")
		return err
	}, func() error { return d.closeSession(s) }, func() (err error) {
		id, err = d.e.start(d.ctx, "bridge")
		return err
	}, func() error { return d.e.remove(d.ctx, id) }, d.cli(func() (err error) {
		byCommand, err = d.e.docker(d.ctx, "run", "--detach", d.e.image)
		return err
	}), d.cli(func() error {
		_, err := d.e.docker(d.ctx, "rm", "--force", byCommand)
		return err
	}))
	if err != nil {
		return err
	}
	d.add(figure{
		name: "create_empty/docker", product: t[0], floor: t[2], floorIs: "container create+start/api net=bridge", ratio: 1.15,
		peers: beside(t[4], "docker run -d/cli net=bridge", 0), note: d.rss(),
	})
	d.add(figure{
		name: "close_empty/docker", product: t[1], floor: t[3], floorIs: "container remove/api net=bridge", ratio: 1.15,
		peers: beside(t[5], "docker rm -f/cli net=bridge", 0),
	})
	return nil
}

// beside is a peer, where it was measured.
func beside(s samples, is string, ratio float64) []peer {
	if len(s) == 0 {
		return nil
	}
	return []peer{{is: is, samples: s, ratio: ratio}}
}

// first is the time until a command has run in a sandbox that was not there.
func (d *dockerBench) first() error {
	var s *session.Session
	var sh *shell
	var id string
	t, err := d.rounds(10, func() (err error) {
		if s, err = d.openOn("none"); err != nil {
			return err
		}
		return runIn(d.ctx, s, io.Discard, "true")
	}, func() error { return d.closeSession(s) }, func() (err error) {
		if sh, err = d.e.shell(d.ctx, "none"); err != nil {
			return err
		}
		return sh.run("/bin/true")
	}, func() error { return sh.close(d.ctx) }, d.cli(func() (err error) {
		id = fmt.Sprintf("berth-bench-%d", time.Now().UnixNano())
		_, err = d.e.docker(d.ctx, "run", "--name", id, "--network", "none", d.e.image, "true")
		return err
	}), d.cli(func() error { return d.e.remove(d.ctx, id) }))
	if err != nil {
		return err
	}
	d.add(figure{
		name: "create_first_command/docker/net=none", product: t[0], floor: t[2], floorIs: "create to first command/api attached shell net=none",
		ratio: 1.15, peers: beside(t[4], "docker run true/cli net=none", 1.3),
	})
	return nil
}

// runIn runs a command that is to succeed.
func runIn(ctx context.Context, s *session.Session, out io.Writer, argv ...string) error {
	exit, err := s.Run(ctx, &driver.Command{Argv: argv}, driver.Streams{Stdout: out, Stderr: io.Discard})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%v ended with %d", argv, exit.Code)
	}
	return err
}

// stop is the end of a sandbox that is kept.
func (d *dockerBench) stop() error {
	var s *session.Session
	var id string
	t, err := d.rounds(10, func() (err error) {
		if s, err = d.openOn("none"); err == nil {
			err = runIn(d.ctx, s, io.Discard, "true")
		}
		return err
	}, func() error {
		stopper, ok := s.Sandbox.(driver.Stopper)
		if !ok {
			return errors.New("it cannot stop")
		}
		return stopper.Stop(d.ctx, true)
	}, func() error { return d.closeSession(s) }, d.cli(func() (err error) {
		id, err = d.e.docker(d.ctx, "run", "--detach", "--init", "--network", "none", d.e.image)
		return err
	}), d.cli(func() error {
		_, err := d.e.docker(d.ctx, "stop", id)
		return err
	}), d.cli(func() error { return d.e.remove(d.ctx, id) }))
	if err != nil {
		return err
	}
	d.add(figure{name: "stop/docker", product: t[1], most: 1000, peers: beside(t[4], "docker stop of docker run --init/cli", 0)})
	return nil
}

// within is commands in a sandbox that is there.
func (d *dockerBench) within() (err error) {
	s, err := d.openOn("none")
	if err != nil {
		return err
	}
	defer d.closeSession(s)
	sh, err := d.e.shell(d.ctx, "none")
	if err != nil {
		return err
	}
	defer sh.close(d.ctx)
	t, err := d.rounds(50, func() error { return runIn(d.ctx, s, io.Discard, "true") }, func() error { return sh.run("/bin/true") },
		d.cli(func() error {
			_, err := d.e.docker(d.ctx, "exec", sh.id, "true")
			return err
		}))
	if err != nil {
		return err
	}
	d.add(figure{
		name: "exec_true/docker", product: t[0], floor: t[1], floorIs: "exec/warm shell in container: fork+exec true", ratio: 3, most: 4,
		peers: beside(t[2], "docker exec true/cli", 1.0/15),
	})

	argv := []string{"head", "-c", "67108864", "/dev/zero"}
	peak := d.peak()
	t, err = d.rounds(5, func() error {
		var n counter
		err := runIn(d.ctx, s, &n, argv...)
		if err == nil && n != 64<<20 {
			err = fmt.Errorf("%d bytes arrived", n)
		}
		return err
	}, func() error {
		n, err := d.e.output(d.ctx, sh.id, argv...)
		if err == nil && n != 64<<20 {
			err = fmt.Errorf("%d bytes arrived", n)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.add(figure{name: "exec_out64/docker", product: t[0], floor: t[1], floorIs: "execout64/api", ratio: 1.2, note: peak()})

	argv = []string{"sh", "-c", "echo ready; read x"}
	t, err = d.rounds(20, func() error { return firstByte(d.ctx, s, argv...) }, func() error { return d.e.terminal(d.ctx, sh.id, argv...) })
	if err != nil {
		return err
	}
	d.add(figure{name: "pty_start/docker", product: t[0], floor: t[1], floorIs: "docker pty start to first byte/api", ratio: 0.15, note: "start to first byte, and end"})
	return nil
}

// files is single files, by name.
func (d *dockerBench) files() error {
	s, err := d.openOn("none")
	if err != nil {
		return err
	}
	defer d.closeSession(s)
	id, err := d.e.start(d.ctx, "none")
	if err != nil {
		return err
	}
	defer d.e.remove(d.ctx, id)
	text := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
	many, err := tarOf(1000, text[:1024])
	if err != nil {
		return err
	}
	big, err := tarOf(1, text, text, text, text)
	if err != nil {
		return err
	}
	if err := errors.Join(d.e.put(d.ctx, id, "/tmp", bytes.NewReader(many)), d.e.put(d.ctx, id, "/", bytes.NewReader(big))); err != nil {
		return err
	}
	if _, err := s.Write(d.ctx, "big", driver.WriteOptions{}, &repeated{piece: text, left: 64 << 20}); err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	peak := d.peak()
	t, err := d.rounds(5, func() error { return readAll(d.ctx, s, "big", 64<<20, buf) }, func() error {
		return d.e.get(d.ctx, id, "/d00/f00000")
	})
	if err != nil {
		return err
	}
	d.add(figure{name: "read64/docker", product: t[0], floor: t[1], floorIs: "read64/api GET archive", note: peak()})

	made := 0
	t, err = d.rounds(50, func() error {
		made++
		_, err := s.Write(d.ctx, fmt.Sprintf("small%d", made), driver.WriteOptions{}, bytes.NewReader(text[:1024]))
		return err
	}, func() error { return readAll(d.ctx, s, fmt.Sprintf("small%d", made), 1024, buf) }, func() error {
		return d.e.get(d.ctx, id, "/tmp/d00/f00000")
	})
	if err != nil {
		return err
	}
	d.add(figure{name: "read1k/docker", product: t[1], floor: t[2], floorIs: "read1k/api GET archive", ratio: 0.1})
	d.add(figure{name: "create1k/docker", product: t[0], floor: t[2], floorIs: "read1k/api GET archive", ratio: 0.1})

	t, err = d.rounds(5, func() error {
		made++
		for i := range 1000 {
			opts := driver.WriteOptions{Parents: true}
			if _, err := s.Write(d.ctx, fmt.Sprintf("m%d/d%02d/f%05d", made, i%100, i), opts, bytes.NewReader(text[:1024])); err != nil {
				return err
			}
		}
		return nil
	}, func() error { return d.e.put(d.ctx, id, "/tmp", bytes.NewReader(many)) })
	if err != nil {
		return err
	}
	d.add(figure{name: "write_1000 x1KiB/docker", product: t[0], floor: t[1], floorIs: "write_1000 x1KiB/api one PUT archive", most: 1000, note: "one call a file"})
	return nil
}

// tarOf is an archive of files that each hold the parts.
func tarOf(n int, parts ...[]byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	content := bytes.Join(parts, nil)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%02d/f%05d", i%100, i), Mode: 0o644, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close() // writes the end
	return b.Bytes(), err
}

// trees is 256 MiB as one archive, against tar in a container that has the archive already.
func (d *dockerBench) trees() error {
	s, err := d.openOn("none")
	if err != nil {
		return err
	}
	defer d.closeSession(s)
	sh, err := d.e.shell(d.ctx, "none")
	if err != nil {
		return err
	}
	defer sh.close(d.ctx)
	archive, err := tarOf(256, bytes.Repeat([]byte("0123456789abcde\n"), 64<<10))
	if err != nil {
		return err
	}
	var whole bytes.Buffer
	w := tar.NewWriter(&whole)
	err = w.WriteHeader(&tar.Header{Name: "t.tar", Mode: 0o644, Size: int64(len(archive))})
	if err == nil {
		_, err = w.Write(archive)
	}
	if err = errors.Join(err, w.Close()); err == nil {
		err = d.e.put(d.ctx, sh.id, "/tmp", &whole)
	}
	if err != nil {
		return err
	}
	t, err := d.rounds(5, func() error {
		_, err := s.Import(d.ctx, driver.ImportOptions{Path: "in"}, bytes.NewReader(archive))
		return err
	}, func() error { return runIn(d.ctx, s, io.Discard, "rm", "-r", "in") },
		func() error { return sh.run("mkdir -p /in && tar -C /in -xf /tmp/t.tar") }, func() error { return sh.run("rm -r /in") },
		func() error { return d.e.put(d.ctx, sh.id, "/tmp", bytes.NewReader(archive)) }, func() error { return sh.run("rm -r /tmp/d*") })
	if err != nil {
		return err
	}
	ms := float64(len(archive)) / 400e6 * 1000
	d.add(figure{
		name: "import256/docker", product: t[0], floor: t[2], floorIs: "tar -x in the container", most: float64(int(ms)),
		peers: []peer{{is: "import256/api PUT archive", samples: t[4]}},
		note:  fmt.Sprintf("%.0f MB/s", float64(len(archive))/1e3/t[0].at(0.5)),
	})
	return nil
}

// scale is many sessions at once: create, five commands, close. Nothing may be left of them.
func (d *dockerBench) scale() error {
	n := d.n(50)
	one := func(f func() error) error {
		errs := make(chan error, n)
		for range n {
			go func() { errs <- f() }()
		}
		var all error
		for range n {
			all = errors.Join(all, <-errs)
		}
		return all
	}
	mark := fmt.Sprint(time.Now().UnixNano()) // of the processes that each command leaves behind
	session := func() error {
		s, err := d.openOn("bridge")
		if err != nil {
			return err
		}
		for range 5 {
			err = errors.Join(err, runIn(d.ctx, s, io.Discard, "sh", "-c", "sleep "+mark+" &"))
		}
		return errors.Join(err, s.Close(d.ctx, run.Completed))
	}
	shell := func() error {
		sh, err := d.e.shell(d.ctx, "bridge")
		if err != nil {
			return err
		}
		for range 5 {
			err = errors.Join(err, sh.run("sh -c true"))
		}
		return errors.Join(err, sh.close(d.ctx))
	}
	if err := session(); err != nil { // the driver is warm
		return err
	}
	before, err := d.present(mark)
	if err != nil {
		return err
	}
	t, err := d.rounds(1, func() error { return one(session) }, func() error { return one(shell) })
	if err != nil {
		return err
	}
	var after things
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if after, err = d.present(mark); err != nil {
			return err
		}
		if after.within(before) || time.Since(began) > 20*time.Second {
			break
		}
	}
	note := "nothing is left"
	if !after.within(before) {
		note = fmt.Sprintf("LEFT BEHIND: %+v, before it %+v", after, before)
	}
	d.add(figure{
		name: fmt.Sprintf("scale_%d_wall/docker", n), product: t[0], floor: t[1],
		floorIs: fmt.Sprintf("docker_scale_%d_wall/attached shell net=bridge", n), ratio: 1.15, note: note,
	})
	return nil
}

// things are what may be left behind.
type things struct{ containers, volumes, networks, processes, files int }

func (t things) within(o things) bool {
	return t.containers <= o.containers && t.volumes <= o.volumes && t.networks <= o.networks && t.processes <= o.processes && t.files <= o.files
}

// present counts them: on the engine, processes with a mark on this machine, and the driver's open files.
func (d *dockerBench) present(mark string) (n things, err error) {
	cs, err := d.e.ContainerList(d.ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return n, err
	}
	vs, err := d.e.VolumeList(d.ctx, client.VolumeListOptions{})
	if err != nil {
		return n, err
	}
	ns, err := d.e.NetworkList(d.ctx, client.NetworkListOptions{})
	if err != nil {
		return n, err
	}
	n.containers, n.volumes, n.networks = len(cs.Items), len(vs.Items), len(ns.Items)
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return n, err
	}
	for _, f := range names {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "sleep\x00"+mark) {
			n.processes++
		}
	}
	for _, s := range d.env.plugins.Statuses() {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
		if err == nil && s.Driver == "docker" {
			n.files += len(list)
		}
	}
	return n, nil
}
