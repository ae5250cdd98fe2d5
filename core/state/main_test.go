// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// child tells a copy of this program what to do instead of testing.
const child = "BERTH_TEST_STATE_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(child); what != "" {
		if err := children[what](context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	stopServer()
	os.Exit(code)
}

// eachStore runs a test over both backends, each time with a store of its own.
func eachStore(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Run("sqlite", func(t *testing.T) { f(t, Config{Path: filepath.Join(t.TempDir(), "a dir?", "state.db")}) })
	t.Run("postgres", func(t *testing.T) { f(t, Config{URL: database(t)}) })
}

func openStore(t *testing.T, cfg Config) *db {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*db)
}

// server is a PostgreSQL server of this test alone, on a socket in a directory.
type server struct {
	dir string
	cmd *exec.Cmd
}

var (
	theServer   *server
	serverFault error
	serverOnce  sync.Once
	databases   int
	databasesMu sync.Mutex
)

const noServer = "PostgreSQL is not installed (Debian: postgresql)"

// database gives the URL of a new database on the server, which is started when it is first needed.
func database(t *testing.T) string {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is fine
	if len(bins) == 0 {
		t.Skip(noServer)
	}
	serverOnce.Do(func() { theServer, serverFault = startServer(bins[len(bins)-1]) })
	if serverFault != nil {
		t.Fatal(serverFault)
	}
	databasesMu.Lock()
	databases++
	name := "t" + strconv.Itoa(databases)
	databasesMu.Unlock()
	url := func(db string) string {
		return fmt.Sprintf("postgres:///%s?host=%s&user=postgres", db, theServer.dir)
	}
	d, err := openPostgres(url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.sql.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return url(name)
}

// startServer makes and starts a server that no network reaches. PostgreSQL does not run as root.
func startServer(bin string) (_ *server, err error) {
	dir, err := os.MkdirTemp("/tmp", "bpg") // the socket's name must be short
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uerr, gerr, os.Chown(dir, int(uid), int(gid))); err != nil {
			return nil, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	run := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Dir, c.Env, c.SysProcAttr = dir, []string{"PATH=" + bin + ":/usr/bin:/bin", "LC_ALL=C"}, attr
		return c
	}
	data := filepath.Join(dir, "data")
	if out, err := run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s.cmd = run("pg_ctl", "-D", data, "-l", filepath.Join(dir, "log"), "-w", "-t", "120",
		"-o", "-c listen_addresses='' -c fsync=off -c unix_socket_directories="+dir, "start")
	if out, err := s.cmd.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // what can be had of it
		return nil, fmt.Errorf("pg_ctl: %w: %s%s", err, out, log)
	}
	s.cmd = run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
	return s, nil
}

func stopServer() {
	if theServer == nil {
		return
	}
	if out, err := theServer.cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the server was not stopped: %v: %s\n", err, out)
		os.Exit(1)
	}
	if err := os.RemoveAll(theServer.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
