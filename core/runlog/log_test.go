// SPDX-License-Identifier: Apache-2.0

package runlog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func entry(n int) runlog.Entry {
	return runlog.Entry{
		Type: "event", Time: start.Add(time.Duration(n) * time.Millisecond),
		Data: fmt.Appendf(nil, `{"n":%d,"text":"<a> & \u2028"}`, n),
	}
}

func item(text string) model.Item { return model.Message("user", text) }

// fill makes a log of n steps, one item and one record each, and gives the references.
func fill(t testing.TB, dir string, n int) []run.Ref {
	t.Helper()
	l, err := runlog.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	var refs []run.Ref
	for i := range n {
		ref, err := l.Put(item(fmt.Sprintf("item %d\nwith two lines", i)))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
		if err := l.Append(false, entry(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return refs
}

// data reads the records' data, and fails when a record's items are not all there.
func data(t testing.TB, l *runlog.Log) []string {
	t.Helper()
	var out []string
	for r, err := range l.Records() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(r.Data))
	}
	return out
}

func reopen(t testing.TB, dir string) *runlog.Log {
	t.Helper()
	l, err := runlog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLogGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run-1")
	refs := fill(t, dir, 3)
	l := reopen(t, dir)
	if l.Cut() != 0 {
		t.Errorf("%d bytes were cut off a good log", l.Cut())
	}
	again, err := l.Put(item("item 1\nwith two lines"))
	if err != nil || again != refs[1] {
		t.Errorf("the same item has the reference %v, then %v: %v", refs[1], again, err)
	}
	fresh, err := l.Put(item("new"))
	if err != nil {
		t.Fatal(err)
	}
	for i, ref := range append(refs, fresh) { // fresh is not on disk yet
		it, err := l.Get(ref)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("item %d\nwith two lines", i)
		if i == 3 {
			want = "new"
		}
		if it.Text() != want || it.Type != model.ItemMessage {
			t.Errorf("item %d is %s %q", i, it.Type, it.Raw)
		}
	}
	if err := l.Append(true, entry(3), entry(4)); err != nil {
		t.Fatal(err)
	}
	got := data(t, l)
	var want []string
	for i := range 5 {
		want = append(want, string(entry(i).Data))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "items.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte("\n")); n != 4 {
		t.Errorf("items.jsonl has %d lines for 4 different items", n)
	}
}

// A crash can cut either file anywhere in what was written last. Whatever it leaves, the log opens with a part of its
// records, in order, whose items are all there, and goes on.
func TestTornTailIsCut(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	refs := fill(t, whole, 4)
	logRaw, itemsRaw := read(t, whole, "log.jsonl"), read(t, whole, "items.jsonl")
	lastTwo := bytes.LastIndexByte(logRaw[:bytes.LastIndexByte(logRaw[:len(logRaw)-1], '\n')], '\n') + 1
	try := func(logPart, itemsPart []byte) int {
		dir := filepath.Join(t.TempDir(), "torn")
		write(t, dir, "log.jsonl", logPart)
		write(t, dir, "items.jsonl", itemsPart)
		l, err := runlog.Open(dir)
		if err != nil {
			t.Fatalf("open after %d bytes of the log and %d of the items: %v", len(logPart), len(itemsPart), err)
		}
		defer func() { l.Close() }()
		got := data(t, l)
		for i := range got {
			if got[i] != string(entry(i).Data) {
				t.Fatalf("record %d is %s", i, got[i])
			}
			if _, err := l.Get(refs[i]); err != nil {
				t.Fatalf("record %d is there and its item is not: %v", i, err)
			}
		}
		fresh, err := l.Put(item("fresh"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(false, entry(len(got))); err != nil {
			t.Fatal(err)
		}
		if after := data(t, l); len(after) != len(got)+1 {
			t.Fatalf("%d records after one more than %d", len(after), len(got))
		}
		l.Close()
		if l, err = runlog.Open(dir); err != nil {
			t.Fatal(err)
		}
		if it, err := l.Get(fresh); err != nil || it.Text() != "fresh" || l.Cut() != 0 {
			t.Fatalf("an item that was put after the cut reads as %q: %v; %d bytes were cut", it.Raw, err, l.Cut())
		}
		return len(got)
	}
	for n := lastTwo; n <= len(logRaw); n += 1 + n%5 {
		want := bytes.Count(logRaw[:n], []byte("\n")) - 1 // the header is no record of the caller
		if got := try(logRaw[:n], itemsRaw); got != want {
			t.Errorf("%d of %d bytes give %d records, want %d", n, len(logRaw), got, want)
		}
	}
	for n := len(itemsRaw) - 130; n <= len(itemsRaw); n += 1 + n%3 {
		want := bytes.Count(itemsRaw[:n], []byte("\n"))
		if got := try(logRaw, itemsRaw[:n]); got != want {
			t.Errorf("%d of %d bytes of the items give %d records, want %d", n, len(itemsRaw), got, want)
		}
	}
	// A power failure may leave zeros where data was to be.
	if got := try(append(bytes.Clone(logRaw), make([]byte, 512)...), append(bytes.Clone(itemsRaw), make([]byte, 512)...)); got != 4 {
		t.Errorf("zeros after the log give %d records", got)
	}
	if got := try(nil, nil); got != 0 {
		t.Errorf("an empty log gives %d records", got)
	}
}

// Damage before the end is an error that says where, never a cut.
func TestDamageIsAnError(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	fill(t, whole, 4)
	logRaw, itemsRaw := read(t, whole, "log.jsonl"), read(t, whole, "items.jsonl")
	lines := bytes.SplitAfter(logRaw, []byte("\n"))
	join := func(ls ...[]byte) []byte { return bytes.Join(ls, nil) }
	changed := bytes.Replace(lines[2], []byte(`"n":1`), []byte(`"n":7`), 1)
	for name, c := range map[string]struct {
		log  []byte
		want string
	}{
		"changed":       {join(lines[0], lines[1], changed, lines[3], lines[4]), "log.jsonl line 3"},
		"changed last":  {join(lines[0], lines[1], changed), "log.jsonl line 3"},
		"removed":       {join(lines[0], lines[1], lines[3], lines[4]), "log.jsonl line 3"},
		"swapped":       {join(lines[0], lines[2], lines[1], lines[3], lines[4]), "log.jsonl line 2"},
		"doubled":       {join(lines[0], lines[1], lines[1], lines[2]), "log.jsonl line 3"},
		"garbage":       {join(lines[0], lines[1], []byte("garbage\n"), lines[2]), "log.jsonl line 3"},
		"other program": {[]byte(`{"seq":1,"time":"2026-01-02T03:04:05Z","type":"header","stored":0,"data":{"format":"other"},"hash":"` + strings.Repeat("0", 64) + "\"}\n"), "log.jsonl line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bad")
			write(t, dir, "log.jsonl", c.log)
			write(t, dir, "items.jsonl", itemsRaw)
			l, err := runlog.Open(dir)
			if err == nil {
				l.Close()
				t.Fatal("the damaged log was opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not say where: %v", err)
			}
			if !bytes.Equal(read(t, dir, "log.jsonl"), c.log) {
				t.Error("the damaged log was changed")
			}
		})
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	fill(t, dir, 1)
	l := reopen(t, dir)
	if second, err := runlog.Open(dir); err == nil {
		second.Close()
		t.Fatal("the log was opened twice")
	}
	n := 0
	for _, err := range runlog.Read(dir) { // readers need no lock
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("a reader sees %d records", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(false, entry(1)); err == nil {
		t.Error("a closed log takes entries")
	}
	reopen(t, dir)
	if _, err := runlog.Create(dir); err == nil {
		t.Error("a log was made over another one")
	}
	if _, err := runlog.Open(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a log was opened where there is none")
	}
}

func TestFailedWriteEndsTheLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	fill(t, dir, 2)
	l := reopen(t, dir)
	if _, err := l.Put(model.Item{Type: "message", Raw: []byte("{\n}")}); err == nil {
		t.Error("an item of two lines was taken")
	}
	if _, err := l.Get(run.Ref{Hash: strings.Repeat("ab", 32)}); err == nil {
		t.Error("an item was given that was never put")
	}
	if _, err := l.Get(run.Ref{Hash: "short"}); err == nil {
		t.Error("an item was given for a broken reference")
	}
}

// The files are what the package promises to other programs.
func TestReadableWithJQ(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	fill(t, dir, 3)
	for _, name := range []string{"log.jsonl", "items.jsonl"} {
		for line := range bytes.Lines(read(t, dir, name)) {
			if !json.Valid(line) {
				t.Errorf("%s: not JSON: %s", name, line)
			}
		}
	}
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("jq is not installed")
	}
	out, err := exec.CommandContext(t.Context(), jq, "-c", `select(.type == "event").data.n`, filepath.Join(dir, "log.jsonl")).Output()
	if err != nil || string(out) != "0\n1\n2\n" {
		t.Errorf("jq gives %q: %v", out, err)
	}
}

func TestDirRefusesBadIDs(t *testing.T) {
	for _, id := range []string{"", ".", "..", "../x", "a/b", "-x", "a b", strings.Repeat("x", 129)} {
		if d, err := runlog.Dir("/base", id); err == nil {
			t.Errorf("id %q gives %s", id, d)
		}
	}
	a, b := runlog.NewID(start), runlog.NewID(start.Add(time.Millisecond))
	if _, err := runlog.Dir("/base", a); err != nil {
		t.Error(err)
	}
	if a >= b || len(a) != 24 {
		t.Errorf("ids %s and %s do not sort by time", a, b)
	}
}

func FuzzOpen(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "whole")
	fill(f, dir, 3)
	good, items := read(f, dir, "log.jsonl"), read(f, dir, "items.jsonl")
	f.Add(good, items)
	f.Add(good[:len(good)-20], items)
	f.Add(bytes.Replace(good, []byte(`"n":1`), []byte(`"n":5`), 1), items)
	f.Add([]byte("{}\n"), []byte("\n\n"))
	f.Fuzz(func(t *testing.T, logRaw, itemsRaw []byte) {
		dir := filepath.Join(t.TempDir(), "fuzz")
		write(t, dir, "log.jsonl", logRaw)
		write(t, dir, "items.jsonl", itemsRaw)
		l, err := runlog.Open(dir)
		if err != nil {
			if !bytes.Equal(read(t, dir, "log.jsonl"), logRaw) {
				t.Fatal("a log that cannot be opened was changed")
			}
			return
		}
		defer l.Close()
		n := len(data(t, l))
		if err := l.Append(false, entry(n)); err != nil {
			t.Fatal(err)
		}
		if got := len(data(t, l)); got != n+1 {
			t.Fatalf("%d records after one more than %d", got, n)
		}
	})
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func write(t testing.TB, dir, name string, raw []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
