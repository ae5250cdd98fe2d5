// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/sdk/driver"
)

func (a *app) sessionLS(project *projectFlags) *cobra.Command {
	var asJSON, recursive bool
	c := &cobra.Command{
		Use:   "ls [flags] SESSION [PATH]",
		Short: "List a directory of a session's workspace",
		Long:  `Lists a directory. PATH is absolute, or relative to the workspace; the workspace itself when it is left out.`,
		Args:  between(1, 2, "a session and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 2 {
				dir = args[1]
			}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				list := []fileInfo{}
				for f, err := range s.List(ctx, dir, driver.ListOptions{Recursive: recursive}) {
					if err != nil {
						return err
					}
					list = append(list, newFileInfo(&f))
				}
				if asJSON {
					return a.printJSON(list)
				}
				return a.showFiles(list)
			})
		},
	}
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "with everything below it")
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

// fileInfo is a file as ls shows it.
type fileInfo struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"`
	Mode     string    `json:"mode"` // octal
	Size     uint64    `json:"size"`
	User     string    `json:"user"`
	Group    string    `json:"group"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"`

	bits fs.FileMode
}

// fileTypes are the words and the mode bits of the kinds of file.
var fileTypes = map[driver.FileType]struct {
	word string
	bits fs.FileMode
}{
	driver.TypeRegular: {"file", 0}, driver.TypeDirectory: {"directory", fs.ModeDir}, driver.TypeSymlink: {"symlink", fs.ModeSymlink},
	driver.TypeFIFO: {"fifo", fs.ModeNamedPipe}, driver.TypeSocket: {"socket", fs.ModeSocket}, driver.TypeDevice: {"device", fs.ModeDevice},
}

func newFileInfo(f *driver.FileInfo) fileInfo {
	t, ok := fileTypes[f.Type]
	if !ok {
		t.word, t.bits = "unknown", fs.ModeIrregular
	}
	return fileInfo{
		Path: f.Path, Type: t.word, Mode: fmt.Sprintf("%04o", f.Mode), Size: f.Size, User: f.User, Group: f.Group,
		Modified: f.ModTime, Target: f.Target, bits: t.bits | fs.FileMode(f.Mode&0o777),
	}
}

// showFiles lists files as ls -l does.
func (a *app) showFiles(list []fileInfo) error {
	var user, group, size int
	for i := range list {
		f := &list[i]
		user, group, size = max(user, len(f.User)), max(group, len(f.Group)), max(size, len(strconv.FormatUint(f.Size, 10)))
	}
	var b strings.Builder
	for i := range list {
		f := &list[i]
		fmt.Fprintf(&b, "%s  %-*s  %-*s  %*d  %s  %s\n",
			f.mode(), user, f.User, group, f.Group, size, f.Size, f.Modified.Local().Format(time.DateTime), f.name())
	}
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// mode is as ls writes it; Go has another letter for links.
func (f *fileInfo) mode() string { return strings.Replace(f.bits.String(), "L", "l", 1) }

// name is safe for a terminal: a sandbox may choose any bytes.
func (f *fileInfo) name() string {
	name := printable(f.Path)
	if f.Target != "" {
		name += " -> " + printable(f.Target)
	}
	return name
}

// printable quotes a text that a terminal would take for something else.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func (a *app) sessionCat(project *projectFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "cat SESSION PATH...",
		Short: "Print files of a session's workspace",
		Args:  atLeast(2, "a session and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				for _, name := range args[1:] {
					_, r, err := s.Open(ctx, name, driver.ReadOptions{})
					if err != nil {
						return err
					}
					_, err = io.Copy(a.Out, r)
					if err := errors.Join(err, r.Close()); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				return nil
			})
		},
	}
}

func (a *app) sessionCP(project *projectFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files and directories into a session's sandbox or out of it",
		Long: `Copies a file or a directory with everything below it. One side is SESSION:PATH, the other a path of this machine. A
destination that is a directory gets the source by its own name in it, any other is what the copy is called.

Modes, times and links are kept, owners are not: in the sandbox a copy belongs to whom its directory belongs to, here to
you. What comes out of a sandbox is not trusted: nothing in it leads a write out of the destination.`,
		Example: `  berth session cp 06h3:report.md .
  berth session cp data 06h3:input`,
		Args: between(2, 2, "a source and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromIn := sessionPath(args[0])
			to, toIn := sessionPath(args[1])
			switch {
			case fromIn == toIn && fromIn:
				return usage("both are in a sandbox; one side must be a path of this machine\nhint: berth session exec SESSION -- cp copies inside")
			case fromIn == toIn:
				return usage("neither is in a sandbox; one side is SESSION:PATH\nhint: a path of this machine with a colon is written ./a:b")
			case fromIn:
				return a.inSession(cmd, project, from.session, func(ctx context.Context, s *session.Session) error {
					return a.copyOut(ctx, s, from.path, a.path(to.path), strings.HasSuffix(to.path, "/"))
				})
			}
			return a.inSession(cmd, project, to.session, func(ctx context.Context, s *session.Session) error {
				return a.copyIn(ctx, s, a.path(from.path), to.path)
			})
		},
	}
}

// copyIn copies a path of this machine into the sandbox.
func (a *app) copyIn(ctx context.Context, s *session.Session, from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	target, found, err := statOne(ctx, s, to)
	if err != nil {
		return err
	}
	switch {
	case found && target.Type == driver.TypeDirectory:
		to = path.Join(to, filepath.Base(from))
	case strings.HasSuffix(to, "/"):
		return fmt.Errorf("there is no directory %s in the sandbox", to)
	}
	dir, err := landing(ctx, s, to)
	if err != nil {
		return err
	}
	owner := dir.User + ":" + dir.Group
	if info.IsDir() {
		return a.copyTreeIn(ctx, s, from, to, owner)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	written, err := s.Write(ctx, to, driver.WriteOptions{Mode: uint32(info.Mode().Perm()), ModTime: info.ModTime()}, f)
	if err != nil || (written.Info.User == dir.User && written.Info.Group == dir.Group) {
		return err
	}
	return s.SetMeta(ctx, to, driver.MetaChange{Owner: &owner})
}

// copyOut copies a path of the sandbox to this machine.
func (a *app) copyOut(ctx context.Context, s *session.Session, from, to string, intoDir bool) error {
	source, found, err := statOne(ctx, s, from)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("there is no %s in the sandbox", from)
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		name := path.Base(from)
		if path.Clean(from) == "." || name == "/" {
			name = path.Base(s.Root())
		}
		to = filepath.Join(to, name)
	case intoDir:
		return fmt.Errorf("there is no directory %s", to)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if source.Type != driver.TypeDirectory {
		return copyFileOut(ctx, s, from, to)
	}
	return a.copyTreeOut(ctx, s, from, to)
}

// copyFileOut writes beside the destination and renames, so that a failure leaves what was there.
func copyFileOut(ctx context.Context, s *session.Session, from, to string) (err error) {
	info, r, err := s.Open(ctx, from, driver.ReadOptions{})
	if err != nil {
		return err
	}
	defer r.Close() // it was read to its end, or the copy failed
	f, err := os.CreateTemp(filepath.Dir(to), ".berth-cp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := f.Chmod(fs.FileMode(info.Mode & 0o777)); err != nil {
		return err
	}
	if err := os.Chtimes(f.Name(), time.Time{}, info.ModTime); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return err
	}
	return f.Close()
}
