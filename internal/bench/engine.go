// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// engine is a container engine spoken with directly: what the driver is held against.
type engine struct {
	*client.Client
	host  string
	image string
	cli   string // the docker command; empty = there is none
}

// openEngine reaches the engine and gives it an image of one static program.
func openEngine(ctx context.Context) (*engine, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, errors.New("the image is made of busybox, which is not installed (busybox-static)")
	}
	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	e := &engine{Client: c, host: cmp.Or(os.Getenv("DOCKER_HOST"), client.DefaultDockerHost), image: fmt.Sprintf("berth-bench:%d", os.Getpid())}
	if _, err := e.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, fmt.Errorf("no container engine answers at %s: %w", e.host, err)
	}
	e.cli, _ = exec.LookPath("docker") // without it there is less to compare with
	files, err := busyboxFiles(ctx, busybox)
	if err != nil {
		return nil, err
	}
	res, err := e.ImageImport(ctx, client.ImageImportSource{Source: files, SourceName: "-"}, e.image,
		client.ImageImportOptions{Changes: []string{"ENV PATH=/bin", `CMD ["sleep","1000000"]`}})
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, res)
	return e, errors.Join(err, res.Close())
}

func (e *engine) close() error {
	_, err := e.ImageRemove(context.Background(), e.image, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	return errors.Join(err, e.Close())
}

// busyboxFiles is an archive of the program and its names.
func busyboxFiles(ctx context.Context, path string) (io.Reader, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h *tar.Header, body []byte) {
		h.Size = int64(len(body))
		err = errors.Join(err, w.WriteHeader(h))
		if err == nil {
			_, err = w.Write(body)
		}
	}
	add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, body)
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			add(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	return &b, errors.Join(err, w.Close())
}

// start makes and starts a plain container.
func (e *engine) start(ctx context.Context, network string) (string, error) {
	made, err := e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: e.image}, HostConfig: &container.HostConfig{NetworkMode: container.NetworkMode(network)},
	})
	if err != nil {
		return "", err
	}
	_, err = e.ContainerStart(ctx, made.ID, client.ContainerStartOptions{})
	return made.ID, err
}

func (e *engine) remove(ctx context.Context, id string) error {
	_, err := e.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

// docker runs the docker command.
func (e *engine) docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, e.cli, append([]string{"--host", e.host}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// shell is a container whose first process is a shell that reads its commands from the attached standard input: as fast
// as anything in a container can be asked to do something.
type shell struct {
	e  *engine
	id string
	at client.HijackedResponse
}

func (e *engine) shell(ctx context.Context, network string) (*shell, error) {
	made, err := e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: e.image, Cmd: []string{"sh"}, OpenStdin: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		},
		HostConfig: &container.HostConfig{NetworkMode: container.NetworkMode(network)},
	})
	if err != nil {
		return nil, err
	}
	s := &shell{e: e, id: made.ID}
	at, err := e.ContainerAttach(ctx, s.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err == nil {
		s.at = at.HijackedResponse
		_, err = e.ContainerStart(ctx, s.id, client.ContainerStartOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, e.remove(ctx, s.id))
	}
	return s, nil
}

func (s *shell) close(ctx context.Context) error {
	s.at.Close()
	return s.e.remove(ctx, s.id)
}

// run runs a command line to its end.
func (s *shell) run(line string) error {
	if _, err := io.WriteString(s.at.Conn, line+"; echo $?\n"); err != nil {
		return err
	}
	said, err := piece(s.at.Reader, nil)
	if err == nil && string(said) != "0\n" {
		err = fmt.Errorf("%s: the shell said %q", line, said)
	}
	return err
}

// piece reads one part of a stream that holds several.
func piece(r *bufio.Reader, buf []byte) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[4:]))
	if n > cap(buf) {
		buf = make([]byte, n)
	}
	_, err := io.ReadFull(r, buf[:n])
	return buf[:n], err
}

// output runs a command in a container by the engine's own means, and gives how much it said.
func (e *engine) output(ctx context.Context, id string, argv ...string) (n int64, err error) {
	made, err := e.ExecCreate(ctx, id, client.ExecCreateOptions{AttachStdout: true, AttachStderr: true, Cmd: argv})
	if err != nil {
		return 0, err
	}
	at, err := e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, err
	}
	defer at.Close()
	buf := make([]byte, 64<<10)
	for {
		p, err := piece(at.Reader, buf)
		n += int64(len(p))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	for {
		st, err := e.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err == nil && st.Running {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		if err == nil && st.ExitCode != 0 {
			err = fmt.Errorf("%v ended with %d", argv, st.ExitCode)
		}
		return n, err
	}
}

// terminal starts a command on a terminal, waits for its first line and hangs up.
func (e *engine) terminal(ctx context.Context, id string, argv ...string) error {
	made, err := e.ExecCreate(ctx, id, client.ExecCreateOptions{TTY: true, AttachStdin: true, AttachStdout: true, Cmd: argv})
	if err != nil {
		return err
	}
	at, err := e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{TTY: true})
	if err != nil {
		return err
	}
	defer at.Close()
	if _, err = at.Reader.ReadString('\n'); err == nil {
		_, err = io.WriteString(at.Conn, "\n") // it may end
	}
	return err
}

// get reads a file by the engine's archive.
func (e *engine) get(ctx context.Context, id, path string) error {
	res, err := e.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Content)
	return errors.Join(err, res.Content.Close())
}

// put unpacks an archive in a directory.
func (e *engine) put(ctx context.Context, id, dir string, archive io.Reader) error {
	_, err := e.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: dir, Content: archive})
	return err
}
