// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/errs"
)

// layout describes the tables of a store and their indexes, in the backend's own words.
func layout(t *testing.T, d *db) []string {
	t.Helper()
	q := "SELECT tbl_name || ': ' || COALESCE(sql, name) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
	if d.dialect.numbered {
		q = `SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
 FROM information_schema.columns WHERE table_schema = 'public' UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'`
	}
	var all []string
	err := d.query(t.Context(), d.sql, func(scan func(...any) error) error {
		var s string
		err := scan(&s)
		all = append(all, s)
		return err
	}, q)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// Each migration upwards makes something, and the one downwards undoes exactly that, also when it is done twice.
func TestMigrations(t *testing.T) {
	known, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	eachStore(t, func(t *testing.T, cfg Config) {
		d, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		go2 := func(v int) []string {
			t.Helper()
			if err := Migrate(t.Context(), cfg, v); err != nil {
				t.Fatal(err)
			}
			if have, err := d.version(t.Context(), d.sql); err != nil || have != v {
				t.Fatalf("version %d, %v; want %d", have, err, v)
			}
			return layout(t, d)
		}
		at := [][]string{go2(0)}
		if len(at[0]) != 0 {
			t.Fatalf("an empty store has %q", at[0])
		}
		for v := 1; v <= len(known); v++ {
			at = append(at, go2(v))
			if cmp.Equal(at[v], at[v-1]) {
				t.Errorf("migration %s changes nothing", known[v-1].name)
			}
			for _, to := range []int{v - 1, v} {
				if diff := cmp.Diff(at[to], go2(to)); diff != "" {
					t.Errorf("%s, back at version %d: -first +now\n%s", known[v-1].name, to, diff)
				}
			}
		}
		if diff := cmp.Diff(at[0], go2(0)); diff != "" {
			t.Errorf("all the way down: -first +now\n%s", diff)
		}
		if diff := cmp.Diff(at[len(known)], go2(len(known))); diff != "" {
			t.Errorf("all the way up: -first +now\n%s", diff)
		}
		if err := Migrate(t.Context(), cfg, len(known)+1); err == nil {
			t.Error("a version that nobody knows was made")
		}
	})
}

func TestKeepsItsID(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		a, b := openStore(t, cfg), openStore(t, cfg)
		if a.ID() == "" || a.ID() != b.ID() {
			t.Errorf("%q and %q", a.ID(), b.ID())
		}
	})
	if a, b := openStore(t, Config{Path: t.TempDir() + "/a"}), openStore(t, Config{Path: t.TempDir() + "/b"}); a.ID() == b.ID() {
		t.Error("two stores have one id")
	}
}

// A store of a newer berth is refused, and not a byte of it changes.
func TestNewerSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d := openStore(t, cfg)
		if _, err := d.exec(t.Context(), d.sql, "UPDATE berth_meta SET value = '99' WHERE name = 'version'"); err != nil {
			t.Fatal(err)
		}
		before := layout(t, d)
		var bytes map[string]string
		if cfg.Path != "" {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			bytes = contents(t, filepath.Dir(cfg.Path))
		}
		s, err := Open(t.Context(), cfg)
		if err == nil {
			s.Close()
			t.Fatal("it was opened")
		}
		if !errors.Is(err, errs.VersionMismatch) || !strings.Contains(err.Error(), "schema 99") || !strings.Contains(err.Error(), d.where) {
			t.Errorf("%v", err)
		}
		if err := Migrate(t.Context(), cfg, 0); !errors.Is(err, errs.VersionMismatch) {
			t.Errorf("migrate: %v", err)
		}
		if cfg.Path != "" {
			if after := contents(t, filepath.Dir(cfg.Path)); !maps.Equal(bytes, after) {
				t.Error("the file was changed")
			}
			return
		}
		if diff := cmp.Diff(before, layout(t, d)); diff != "" {
			t.Error(diff)
		}
	})
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, p))
		files[p] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Others of the machine do not read it.
func TestFileMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	d := openStore(t, Config{Path: dir + "/state.db"})
	if err := d.CreateSession(t.Context(), sample("01A")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"", "/state.db", "/state.db-wal"} {
		info, err := os.Stat(dir + f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", f, info.Mode().Perm())
		}
	}
	if _, err := Open(t.Context(), Config{Path: "state.db"}); err == nil {
		t.Error("a relative path was taken")
	}
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: notes}); err == nil || !strings.Contains(err.Error(), notes) {
		t.Errorf("a file that is no database: %v", err)
	}
}

// A password in a URL is in no message.
func TestURLIsNotShown(t *testing.T) {
	for _, url := range []string{"postgres://me:hunter2@[bad/x", "postgres://me:hunter2@127.0.0.1:1/x?sslmode=nonsense", "postgres://me:hunter2@127.0.0.1:1/x"} {
		_, err := Open(t.Context(), Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Many processes open a store at once that is not there yet, and write into it.
func TestManyProcesses(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		const processes = 6
		var cmds []*exec.Cmd
		for i := range processes {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), child+"=write", "STORE_URL="+cfg.URL, "STORE_PATH="+cfg.Path, fmt.Sprintf("STORE_WHO=%d", i))
			c.Stderr = os.Stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, c)
		}
		for _, c := range cmds {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		all, err := openStore(t, cfg).ListSessions(t.Context(), SessionFilter{})
		if err != nil || len(all) != processes*childRecords+1 {
			t.Fatalf("%d records, %v", len(all), err)
		}
		// Every one of them has counted up one record, and none of it was lost.
		if s := all[slices.IndexFunc(all, func(s *Session) bool { return s.ID == "COUNTER" })]; s.Reason != fmt.Sprint(processes*childRecords) {
			t.Errorf("counted to %s", s.Reason)
		}
	})
}

const childRecords = 10

var children = map[string]func(context.Context) error{"write": func(ctx context.Context) error {
	s, err := Open(ctx, Config{URL: os.Getenv("STORE_URL"), Path: os.Getenv("STORE_PATH")})
	if err != nil {
		return err
	}
	defer s.Close()
	counter := sample("COUNTER")
	counter.Reason, counter.Name = "0", ""
	if err := s.CreateSession(ctx, counter); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	for i := range childRecords {
		if err := s.CreateSession(ctx, sample(fmt.Sprintf("W%s-%d", os.Getenv("STORE_WHO"), i))); err != nil {
			return err
		}
		for {
			c, err := s.Session(ctx, "COUNTER")
			if err != nil {
				return err
			}
			var n int
			if _, err := fmt.Sscan(c.Reason, &n); err != nil {
				return err
			}
			c.Reason = fmt.Sprint(n + 1)
			if err := s.UpdateSession(ctx, c); err == nil {
				break
			} else if !errors.Is(err, ErrChanged) {
				return err
			}
		}
	}
	return nil
}}
