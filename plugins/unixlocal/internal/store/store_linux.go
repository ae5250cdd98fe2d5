// SPDX-License-Identifier: Apache-2.0

// Package store keeps the directories of sandboxes: what is needed to find one again, and to be sure that a directory
// is one before it is removed.
//
// Each sandbox has a directory of its own below one that nobody else may enter. In it, among the sandbox's files, are
// the record, the key of the guest, and the lock. The guest inherits the lock: as long as it is held the guest lives,
// whatever became of the driver.
package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine/probe"
)

// version of the record.
const version = 1

// Store is the directory of all sandboxes.
type Store struct{ dir string }

// Record is what is kept of a sandbox. It holds no secret.
type Record struct {
	Version   int                `json:"version"`
	ID        string             `json:"id"`
	Proof     string             `json:"proof"` // also in the state that the core keeps
	Created   time.Time          `json:"created"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Root      string             `json:"root"`    // inside
	Files     string             `json:"files"`   // directory with the workspace, home and tmp
	Network   string             `json:"network"` //
	Off       bool               `json:"off,omitempty"`
	Setup     probe.Setup        `json:"setup"`
	Template  string             `json:"template,omitempty"` // directory of the layer below the workspace
	Filled    bool               `json:"filled,omitempty"`   // the workspace holds something of its owner's
	Stopped   bool               `json:"stopped,omitempty"`
	Accounts  driver.Accounts    `json:"accounts,omitzero"`
	RunAs     string             `json:"run_as,omitempty"`
	Workspace driver.Workspace   `json:"workspace,omitzero"`
	Limits    Limits             `json:"limits,omitzero"`
	Guest     Process            `json:"guest,omitzero"`
	Isolation []driver.Isolation `json:"isolation,omitempty"`
}

// Limits of a sandbox, as they were asked for.
type Limits struct {
	Processes uint32  `json:"processes,omitempty"`
	Memory    uint64  `json:"memory,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	FileSize  uint64  `json:"file_size,omitempty"`
	OpenFiles uint32  `json:"open_files,omitempty"`
}

// Process is a process that cannot be mistaken for a later one of the same number.
type Process struct {
	PID   int    `json:"pid,omitempty"`
	Start string `json:"start,omitempty"` // in clock ticks after boot
	Boot  string `json:"boot,omitempty"`
}

// Open opens the store, making its directory.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Internal, "open the session directory", err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "open the session directory", err)
	}
	// A sandbox can make files that run as its user on the host; nobody else may come near them.
	if st.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, errs.Wrap(errs.PermissionDenied, "close the session directory to others", err)
		}
	}
	return &Store{dir: dir}, nil
}

var validID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$`)

// Dir is where the sandbox with an id is, or would be.
func (s *Store) Dir(id string) (string, error) {
	if !validID.MatchString(id) {
		return "", errs.New(errs.InvalidArgument, "%q is no sandbox id", id)
	}
	return filepath.Join(s.dir, id), nil
}

// Session is the directory of one sandbox.
type Session struct {
	Dir    string
	Record Record
}

// Create makes the directory of a new sandbox. errs.FileExists when there is one.
func (s *Store) Create(rec Record) (*Session, error) {
	dir, err := s.Dir(rec.ID)
	if err != nil {
		return nil, err
	}
	// It gets its name when it is complete: a driver that is killed before leaves nothing that has the name.
	unfinished := filepath.Join(filepath.Dir(dir), ".new-"+rec.ID+"-")
	temp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(unfinished))
	if err != nil {
		return nil, errs.Wrap(errs.CreateFailed, "make the sandbox's directory", err)
	}
	rec.Version, rec.Proof, rec.Created = version, random(), time.Now().UTC()
	if rec.Files == "" {
		rec.Files = dir
	}
	x := &Session{Dir: temp, Record: rec}
	if err = os.WriteFile(x.keyFile(), []byte(random()), 0o600); err == nil {
		if err = x.Save(); err == nil {
			err = os.Rename(temp, dir)
		}
	}
	if err != nil {
		_ = os.RemoveAll(temp) // the first error is the one to tell
		if _, serr := os.Lstat(dir); serr == nil {
			return nil, errs.New(errs.FileExists, "sandbox %s exists", rec.ID)
		}
		return nil, errs.Wrap(errs.CreateFailed, "make the sandbox's directory", err)
	}
	x.Dir = dir
	left, _ := filepath.Glob(unfinished + "*") // the pattern is well formed
	for _, d := range left {
		_ = os.RemoveAll(d) // it stays where it is
	}
	return x, nil
}

func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// Open finds a sandbox. errs.SandboxGone when there is none with this proof; an empty proof fits all.
func (s *Store) Open(id, proof string) (*Session, error) {
	dir, err := s.Dir(id)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "session.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.SandboxGone, "sandbox %s no longer exists", id)
	}
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "read the sandbox's record", err)
	}
	x := &Session{Dir: dir}
	if err := json.Unmarshal(b, &x.Record); err != nil {
		return nil, errs.Wrap(errs.Internal, "read the sandbox's record", err)
	}
	if x.Record.ID != id || proof != "" && x.Record.Proof != proof {
		return nil, errs.New(errs.SandboxGone, "the directory of sandbox %s belongs to another sandbox by now", id)
	}
	return x, nil
}

// All gives the sandboxes whose record can be read and has all the labels.
func (s *Store) All(ctx context.Context, labels map[string]string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		entries, err := os.ReadDir(s.dir)
		if err != nil {
			yield(nil, errs.Wrap(errs.Internal, "list sandboxes", err))
			return
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				yield(nil, errs.Wrap(errs.Canceled, "list sandboxes", context.Cause(ctx)))
				return
			}
			x, err := s.Open(e.Name(), "")
			if err != nil || !x.Record.has(labels) {
				continue
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// NeedsTemplate says whether the workspace of a sandbox lies over a template.
func (s *Store) NeedsTemplate(name string) (bool, error) {
	for x, err := range s.All(context.Background(), nil) {
		if err != nil || x.Record.Template == name {
			return true, err
		}
	}
	return false, nil
}

func (r *Record) has(labels map[string]string) bool {
	for k, v := range labels {
		if r.Labels[k] != v {
			return false
		}
	}
	return true
}

// Save writes the record.
func (x *Session) Save() error {
	b, err := json.Marshal(x.Record)
	if err != nil {
		return errs.Wrap(errs.Internal, "write the sandbox's record", err)
	}
	tmp := filepath.Join(x.Dir, ".session.json")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return errs.Wrap(errs.Internal, "write the sandbox's record", err)
	}
	return errs.Wrap(errs.Internal, "write the sandbox's record", os.Rename(tmp, filepath.Join(x.Dir, "session.json")))
}

func (x *Session) keyFile() string { return filepath.Join(x.Dir, "key") }

// Key is what the guest and its drivers know, and nobody else.
func (x *Session) Key() ([]byte, error) {
	b, err := os.ReadFile(x.keyFile())
	return b, errs.Wrap(errs.Internal, "read the guest's key", err)
}

// lockTime bounds the wait for a guest that is ending: it holds the lock until the kernel has taken it down.
const lockTime = 5 * time.Second

// Lock takes the lock that the guest is to inherit. errs.SandboxNotReady when a guest holds it and does not end.
func (x *Session) Lock(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTime, errs.New(errs.SandboxNotReady, "sandbox %s is in use", x.Record.ID))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := x.tryLock()
		if !errors.Is(err, errs.SandboxNotReady) {
			return f, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (x *Session) tryLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(x.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.SandboxGone, "sandbox %s no longer exists", x.Record.ID)
	}
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "open the sandbox's lock", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // the refusal is what counts
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.New(errs.SandboxNotReady, "sandbox %s is in use", x.Record.ID)
		}
		return nil, errs.Wrap(errs.Internal, "lock the sandbox", err)
	}
	return f, nil
}

// Alive says whether a guest holds the lock.
func (x *Session) Alive() bool {
	f, err := x.tryLock()
	if err != nil {
		return errors.Is(err, errs.SandboxNotReady)
	}
	_ = f.Close() // it was only asked for
	return false
}

// Remove removes what is the sandbox's, and nothing else: the directory's name, the record in it and the proof have to
// agree. remove removes the files; the record goes last, so that a removal that was interrupted can be taken up again.
func (x *Session) Remove(remove func(dirs []string) error) error {
	again, err := (&Store{dir: filepath.Dir(x.Dir)}).Open(x.Record.ID, x.Record.Proof)
	if err != nil {
		if errors.Is(err, errs.SandboxGone) {
			return nil
		}
		return err
	}
	var dirs []string
	for _, name := range []string{"upper", "overlay", "work", "home", "tmp"} {
		dirs = append(dirs, filepath.Join(again.Record.Files, name))
	}
	if err := remove(dirs); err != nil {
		return errs.Wrap(errs.Internal, "remove the sandbox's files", err)
	}
	if again.Record.Files != x.Dir {
		if err := os.Remove(again.Record.Files); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(errs.Internal, "remove the sandbox's files", err)
		}
	}
	entries, err := os.ReadDir(x.Dir)
	if err != nil {
		return errs.Wrap(errs.Internal, "remove the sandbox's directory", err)
	}
	for _, e := range entries {
		if e.Name() != "session.json" {
			if err := os.RemoveAll(filepath.Join(x.Dir, e.Name())); err != nil {
				return errs.Wrap(errs.Internal, "remove the sandbox's directory", err)
			}
		}
	}
	return errs.Wrap(errs.Internal, "remove the sandbox's directory", os.RemoveAll(x.Dir))
}

// ProcessOf describes a process that runs.
func ProcessOf(pid int) Process {
	return Process{PID: pid, Start: startTicks(pid), Boot: bootID()}
}

// Kill ends the process if it still is the same one, and returns when it has ended, and with it all of its namespace.
func (p Process) Kill() error {
	if p.PID <= 1 || p.Boot != bootID() {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // gone
	}
	defer unix.Close(fd)
	// The descriptor holds on to the process; only now its age says which one it is.
	if startTicks(p.PID) != p.Start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("kill the guest: %w", err)
	}
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the guest's end: %w", err)
		}
	}
	return fmt.Errorf("the guest did not end within %s", killTimeout)
}

// killTimeout is for processes that the kernel cannot end at once, such as those that wait for a dead file server.
const killTimeout = 10 * time.Second
