// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/audit"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/ops"
)

const canary = "canary-77aa31"

func redact(s string) string { return strings.ReplaceAll(s, canary, "GONE") }

// written makes a log of eight records.
func written(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := audit.Open(dir, redact, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := ops.With(t.Context(), ops.Who{Run: "r1", Agent: "worker", Call: "c1"})
	watch := l.Of("r1")
	watch(event.Event{Kind: event.KindRunStarted, Agent: "worker", Data: event.RunStarted{Input: "do it", Model: "m"}})
	watch(event.Event{Kind: event.KindToolStarted, Agent: "worker", Data: event.ToolStarted{CallID: "c1", Tool: "exec_command", Arguments: `{"cmd":"cat ` + canary + `"}`}})
	op := ops.Op{Kind: ops.Exec, Sandbox: "box", Driver: "unixlocal", Detail: map[string]any{"argv": []string{"sh", "-c", "echo " + canary}}}
	_, end, err := l.Begin(ctx, op)
	if err != nil {
		t.Fatal(err)
	}
	code := 3
	end(ops.End{Code: &code, Detail: map[string]any{"output_bytes": 7}})
	_, end, err = l.Begin(ctx, ops.Op{Kind: ops.FileWrite, Sandbox: "box", Detail: map[string]any{"path": "/w/a"}})
	if err != nil {
		t.Fatal(err)
	}
	end(ops.End{Err: errors.New("no room for " + canary)})
	watch(event.Event{Kind: event.KindToolFinished, Agent: "worker", Data: event.ToolFinished{CallID: "c1", Tool: "exec_command", OK: true}})
	watch(event.Event{Kind: event.KindRunFinished, Agent: "worker", Data: event.RunFinished{Status: "completed"}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Begin(ctx, op); err == nil {
		t.Error("something is done that cannot be written down")
	}
	return dir
}

func verify(t testing.TB, dir string) *audit.Report {
	t.Helper()
	rep, err := audit.Verify(dir, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestLog(t *testing.T) {
	dir := written(t)
	var all []audit.Record
	rep, err := audit.Verify(dir, "", func(r audit.Record, err error) {
		if err != nil {
			t.Error(err)
		}
		all = append(all, r)
	})
	if err != nil || !rep.OK() || rep.Records != 8 || rep.Head != all[7].Hash {
		t.Fatalf("%+v, %v", rep, err)
	}
	if r := all[3]; r.Op != "sandbox.exec" || r.Phase != audit.End || r.Of != 3 || r.Call != "c1" || r.Run != "r1" || !*r.OK || r.More["exit_code"] != 3.0 {
		t.Errorf("%+v", r)
	}
	if r := all[5]; *r.OK || r.Error != "no room for GONE" {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(filepath.Join(dir, audit.FileName))
	if err != nil || strings.Contains(string(text), canary) {
		t.Errorf("the log holds a secret: %s %v", text, err)
	}
	if again, err := audit.Verify(dir, rep.Head, nil); err != nil || !again.OK() {
		t.Errorf("%+v, %v", again, err)
	}
	if other, err := audit.Verify(dir, strings.Repeat("0", 64), nil); err != nil || other.OK() {
		t.Errorf("%+v, %v", other, err)
	}
}

// rehash makes the hash of a line fit again.
func rehash(line []byte) []byte {
	i := bytes.LastIndex(line, []byte(`,"hash":"`))
	sum := sha256.Sum256(line[:i])
	return append(line[:i:i], `,"hash":"`+hex.EncodeToString(sum[:])+"\"}\n"...)
}

func TestTampering(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(lines [][]byte) [][]byte
		line int
		says string
	}{
		"changed": {func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte("sh"), []byte("ls"), 1); return l }, 3, "was changed"},
		"changed and hashed": {func(l [][]byte) [][]byte {
			l[2] = rehash(bytes.Replace(l[2], []byte("sh"), []byte("ls"), 1))
			return l
		}, 4, "does not name the record before it"},
		"removed":    {func(l [][]byte) [][]byte { return slices.Delete(l, 2, 3) }, 3, "record 4 follows record 2"},
		"reordered":  {func(l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l }, 3, "record 4 follows record 2"},
		"doubled":    {func(l [][]byte) [][]byte { return slices.Insert(l, 3, l[2]) }, 4, "record 3 follows record 3"},
		"cut":        {func(l [][]byte) [][]byte { return l[:6] }, 7, "2 records are missing at the end: it had 8"},
		"cut within": {func(l [][]byte) [][]byte { l[7] = l[7][:40]; return l }, 8, "1 records are missing"},
		"emptied":    {func([][]byte) [][]byte { return nil }, 1, "8 records are missing"},
		"no record":  {func(l [][]byte) [][]byte { l[4] = []byte("x\n"); return l }, 5, "it is no record"},
		"last changed and hashed": {func(l [][]byte) [][]byte {
			l[7] = rehash(bytes.Replace(l[7], []byte("completed"), []byte("complete!"), 1))
			return l
		}, 9, "record 8 is not the one that was written"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t)
			path := filepath.Join(dir, audit.FileName)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := slices.Collect(bytes.Lines(text))
			if err := os.WriteFile(path, bytes.Join(c.edit(lines), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			rep := verify(t, dir)
			if rep.OK() || rep.Findings[0].Line != c.line || !strings.Contains(rep.Findings[0].Problem, c.says) {
				t.Errorf("%+v", rep)
			}
			if l, err := audit.Open(dir, nil, nil); err == nil {
				t.Error("it was gone on with")
				l.Close()
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		dir := written(t)
		if err := os.Remove(filepath.Join(dir, audit.FileName)); err != nil {
			t.Fatal(err)
		}
		if rep := verify(t, dir); rep.OK() || !strings.Contains(rep.Findings[0].Problem, "the whole log is missing") {
			t.Errorf("%+v", rep)
		}
	})
	t.Run("no head", func(t *testing.T) {
		dir := written(t)
		if err := os.Remove(filepath.Join(dir, audit.HeadName)); err != nil {
			t.Fatal(err)
		}
		if rep := verify(t, dir); rep.OK() || !strings.Contains(rep.Findings[0].Problem, "audit.head is missing") {
			t.Errorf("%+v", rep)
		}
	})
}

// A process that dies while it writes a record, at whatever byte, leaves a log that goes on and says so.
func TestCrashInARecord(t *testing.T) {
	dir := written(t)
	text, err := os.ReadFile(filepath.Join(dir, audit.FileName))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(bytes.Lines(text))
	last := lines[7]
	before := text[:len(text)-len(last)]
	for n := range len(last) {
		dir := written(t)
		// The head is as it was before the record.
		h := []byte(`{"seq":00000000000000000007,"hash":"` + string(lines[6][len(lines[6])-67:len(lines[6])-3]) + "\"}\n")
		if err := errors.Join(os.WriteFile(filepath.Join(dir, audit.FileName), append(slices.Clip(before), last[:n]...), 0o600),
			os.WriteFile(filepath.Join(dir, audit.HeadName), h, 0o600)); err != nil {
			t.Fatal(err)
		}
		if rep := verify(t, dir); !rep.OK() || rep.Torn != n || rep.Records != 7 {
			t.Fatalf("after %d bytes: %+v", n, rep)
		}
		l, err := audit.Open(dir, nil, func() time.Time { return time.Unix(0, 0) })
		if err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		if _, _, err := l.Begin(t.Context(), ops.Op{Kind: ops.Exec}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		want := 8
		if n > 0 {
			want = 9 // with the one that says so
		}
		if rep := verify(t, dir); !rep.OK() || rep.Torn != 0 || rep.Records != want {
			t.Fatalf("after %d bytes, and on: %+v", n, rep)
		}
	}
}

// Whatever is done to the bytes, it is found, and nothing falls over.
func FuzzVerify(f *testing.F) {
	dir := written(f)
	good, err := os.ReadFile(filepath.Join(dir, audit.FileName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(5, 1, []byte("x"))
	f.Add(0, len(good), []byte(nil))
	f.Add(len(good), 0, []byte("{}\n"))
	f.Add(300, 200, []byte("\n\n\n"))
	f.Fuzz(func(t *testing.T, at, length int, with []byte) {
		if at < 0 || at > len(good) || length < 0 || length > len(good)-at {
			t.Skip()
		}
		bad := slices.Concat(good[:at], with, good[at+length:])
		if err := os.WriteFile(filepath.Join(dir, audit.FileName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := audit.Verify(dir, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if same := bytes.Equal(bad, good); same != (rep.OK() && rep.Torn == 0) {
			t.Errorf("%+v", rep)
		}
	})
}
