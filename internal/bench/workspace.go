// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

const smallFiles = 10_000

// manyFiles is a manifest of 10,000 files of 1 KiB; salt makes its contents other ones.
func manyFiles(salt int) *spec.Manifest {
	m := &spec.Manifest{Root: spec.DefaultRoot}
	body := bytes.Repeat([]byte("x"), 1024)
	for i := range smallFiles {
		c := append([]byte(fmt.Sprintf("%d/%d ", salt, i)), body...)[:1024]
		m.Entries = append(m.Entries, spec.Entry{Kind: spec.EntryFile, Path: fmt.Sprintf("d%02d/f%05d", i%100, i), File: &spec.FileEntry{Content: c}})
	}
	return m
}

func manifestTime(b *bench) error {
	tarFile := filepath.Join(b.dir, "many.tar")
	tree := filepath.Join(b.dir, "many")
	for i, e := range manyFiles(0).Entries {
		p := filepath.Join(tree, e.Path)
		if i < 100 {
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(p, e.File.Content, 0o600); err != nil {
			return err
		}
	}
	if err := plainExec(b.ctx, io.Discard, "tar", "-C", tree, "-cf", tarFile, "."); err != nil {
		return err
	}
	salt, made := 0, 0
	var opened []func() error
	p, f, err := b.pairs(5, func() error {
		salt++
		s, err := b.open(manyFiles(salt))
		if err != nil {
			return err
		}
		opened = append(opened, func() error { return b.closeSession(s) })
		return nil
	}, func() error {
		made++
		d := filepath.Join(b.dir, fmt.Sprintf("untar%d", made))
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		return plainExec(b.ctx, io.Discard, "tar", "-C", d, "-xf", tarFile)
	})
	if err != nil {
		return err
	}
	b.add(figure{name: "create_inline_10000/unix-local", product: p, floor: f, floorIs: "write_10000 x1KiB/tar -x", ratio: 2, note: b.rss()})
	m := manyFiles(salt)
	p, f, err = b.pairs(20, func() error {
		s, err := b.open(m)
		if err != nil {
			return err
		}
		opened = append(opened, func() error { return b.closeSession(s) })
		return nil
	}, func() error { return plainExec(b.ctx, io.Discard, "/bin/true") })
	if err != nil {
		return err
	}
	b.add(figure{
		name: "create_inline_10000_again/unix-local", product: p, floor: f, floorIs: "exec/true", most: 20,
		note: "the same manifest, forked from the template",
	})
	for _, c := range opened {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

func localDirTime(b *bench) error {
	tree := filepath.Join(b.dir, "tree")
	body := bytes.Repeat([]byte("y"), 1024)
	for i := range smallFiles {
		d := filepath.Join(tree, fmt.Sprintf("d%02d", i%100))
		if i < 100 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%05d", i)), body, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "big"), bytes.Repeat([]byte("0123456789abcdef"), 16<<20), 0o600); err != nil {
		return err
	}
	made := 0
	var opened []func() error
	p, f, err := b.pairs(5, func() error {
		made++
		// Another file makes it another workspace: it is copied, not forked.
		m := &spec.Manifest{Root: spec.DefaultRoot, Entries: []spec.Entry{
			{Kind: spec.EntryFile, Path: "salt", File: &spec.FileEntry{Content: []byte(fmt.Sprint(made))}},
			{Kind: spec.EntryLocalDir, Path: "tree", LocalDir: &spec.LocalDirEntry{Source: tree, KeepModes: true}},
		}}
		s, err := b.open(m)
		if err != nil {
			return err
		}
		opened = append(opened, func() error { return b.closeSession(s) })
		return nil
	}, func() error {
		made++
		return plainCopy(tree, filepath.Join(b.dir, fmt.Sprintf("copy%d", made)))
	})
	if err != nil {
		return err
	}
	b.add(figure{name: "create_localdir/unix-local", product: p, floor: f, floorIs: "copytree/go copy_file_range x2", ratio: 1.5, note: b.rss()})
	for _, c := range opened {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

// plainCopy copies a tree with two workers and copy_file_range, which is what io.Copy does between files.
func plainCopy(from, to string) error {
	files := make(chan string, 256)
	errs := make(chan error, 2)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for rel := range files {
				if err := copyFile(filepath.Join(from, rel), filepath.Join(to, rel)); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	err := filepath.WalkDir(from, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		files <- rel
		return nil
	})
	close(files)
	wg.Wait()
	select {
	case e := <-errs:
		return e
	default:
		return err
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// scaleTime is many sessions at once: create, five commands, close; against the commands alone.
func scaleTime(b *bench) error {
	for _, m := range []struct {
		sessions, atOnce int // commands of the floor that run at once
		slots            string
	}{{100, 500, "unlimited"}, {500, 4, "4 execs at once"}} {
		n := m.sessions
		if b.quick {
			n /= 50
		}
		argv := []string{"bash", "-lc", "true"}
		one := func(f func() error) error {
			errs := make(chan error, n)
			for range n {
				go func() { errs <- f() }()
			}
			var first error
			for range n {
				if err := <-errs; first == nil {
					first = err
				}
			}
			return first
		}
		p, f, err := b.pairs(3, func() error {
			return one(func() error {
				s, err := b.open(nil)
				if err != nil {
					return err
				}
				for range 5 {
					if _, err := s.Run(b.ctx, &driver.Command{Argv: argv}, driver.Streams{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
						return err
					}
				}
				return b.closeSession(s)
			})
		}, func() error {
			slots := make(chan struct{}, m.atOnce)
			return one(func() error {
				d, err := os.MkdirTemp(b.dir, "s")
				if err != nil {
					return err
				}
				for range 5 {
					slots <- struct{}{}
					err := plainExec(b.ctx, io.Discard, argv...)
					<-slots
					if err != nil {
						return err
					}
				}
				return os.Remove(d)
			})
		})
		if err != nil {
			return err
		}
		b.add(figure{
			name: fmt.Sprintf("scale_%d_wall/unix-local/login", n), product: p, floor: f,
			floorIs: fmt.Sprintf("scale_%d_wall/go login, %s", n, m.slots), ratio: 2.5, note: b.rss(),
		})
	}
	return nil
}

// plainEnv is as little as a sandbox's commands have: with this user's home, a login shell would run this user's profile.
var plainEnv = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "USER=sandbox", "LOGNAME=sandbox", "SHELL=/bin/bash",
	"TMPDIR=/tmp",
}

func plainExec(ctx context.Context, out io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Env = out, plainEnv
	return cmd.Run()
}
