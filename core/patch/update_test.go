// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/patch"
)

func TestUpdate(t *testing.T) {
	tests := []struct {
		name, file, diff string
		want             string // or
		err              string // a part of the error
		note             string // a part of the first note
	}{
		{name: "one line", file: "a\nb\nc\n", diff: "@@\n a\n-b\n+B\n c", want: "a\nB\nc\n"},
		{name: "without header", file: "a\nb\nc\n", diff: " a\n-b\n+B\n c", want: "a\nB\nc\n"},
		{name: "crlf stays", file: "a\r\nb\r\nc\r\n", diff: " a\n-b\n+B\n+B2\n c", want: "a\r\nB\r\nB2\r\nc\r\n"},
		{name: "crlf patch on lf file", file: "a\nb\nc\n", diff: " a\r\n-b\r\n+B\r\n c\r\n", want: "a\nB\nc\n"},
		{name: "mixed endings stay line by line", file: "a\r\nb\nc\r\nd\n", diff: " a\n-b\n+B\n c", want: "a\r\nB\nc\r\nd\n"},
		{name: "insert takes the ending before it", file: "a\r\nb\n", diff: " a\n+x\n b", want: "a\r\nx\r\nb\n"},
		{name: "bom stays", file: "\xef\xbb\xbfa\nb\n", diff: "-a\n+A\n b", want: "\xef\xbb\xbfA\nb\n"},
		{name: "no final newline stays", file: "a\nb", diff: " a\n-b\n+B", want: "a\nB"},
		{name: "append without final newline", file: "a\nb", diff: " b\n+c", want: "a\nb\nc"},
		{name: "delete the open last line", file: "a\nb", diff: " a\n-b", want: "a"},
		{name: "final newline stays", file: "a\nb\n", diff: " b\n+c", want: "a\nb\nc\n"},
		{name: "delete everything", file: "a\nb\n", diff: "-a\n-b", want: ""},
		{name: "insert before", file: "a\nb\n", diff: "+X\n-a\n b", want: "X\nb\n"},
		{name: "into an empty file", file: "", diff: "+a\n+b", want: "a\nb\n"},
		{name: "not utf-8", file: "a\n\xff\xfe\nc\n", diff: " a\n+x", want: "a\nx\n\xff\xfe\nc\n"},
		{name: "form feed and u+2028 are content", file: "a\fb\nc\u2028d\ne\n", diff: " a\fb\n-c\u2028d\n+x\n e", want: "a\fb\nx\ne\n"},
		{name: "lone cr is content", file: "a\rb\nc\n", diff: "-a\rb\n+x\n c", want: "x\nc\n"},
		{name: "empty context line without its space", file: "a\n\nb\n", diff: " a\n\n-b\n+B", want: "a\n\nB\n"},

		{name: "trailing space in the file", file: "a  \nb\nc\n", diff: " a\n-b\n+B\n c", want: "a  \nB\nc\n", note: "trailing white space"},
		{name: "re-indent", file: "    a\n    b\n", diff: " a\n-b\n+B\n+  C", want: "    a\n    B\n      C\n", note: "indentation is ignored"},
		{name: "re-indent to tabs", file: "\tif x {\n\t\tgo()\n\t}\n", diff: " if x {\n-\tgo()\n+\tstop()\n }", want: "\tif x {\n\t\tstop()\n\t}\n", note: "indentation"},
		{name: "indented in different ways", file: "  a\n\t\tb\n", diff: " a\n-b\n+B", err: "indented in different ways"},
		{name: "typographic quotes", file: "say “hi”\n", diff: "-say \"hi\"\n+say \"ho\"", want: "say \"ho\"\n", note: "typographic"},

		{name: "ambiguous", file: "x\na\nx\na\n", diff: " x\n-a\n+A", err: "fits 2 places, at line 1, 3"},
		{name: "as many hunks as places", file: "x\na\nx\na\n", diff: "@@\n x\n-a\n+A\n@@\n x\n-a\n+B", want: "x\nA\nx\nB\n"},
		{name: "anchor tells apart", file: "def f\n  x\ndef g\n  x\n", diff: "@@ def g\n-  x\n+  y", want: "def f\n  x\ndef g\n  y\n"},
		{
			name: "stacked anchors", file: "class A\n def f\n  x\nclass B\n def f\n  x\n", diff: "@@ class B\n@@  def f\n-  x\n+  y",
			want: "class A\n def f\n  x\nclass B\n def f\n  y\n",
		},
		{name: "anchor missing, one place", file: "a\nb\n", diff: "@@ def nope\n-b\n+B", want: "a\nB\n", note: `no line "def nope"`},
		{name: "anchor missing, two places", file: "b\nb\n", diff: "@@ def nope\n-b\n+B", err: `no line "def nope"`},
		{name: "anchor used twice", file: "def f\n a\n b\n", diff: "@@ def f\n- a\n+ A\n@@ def f\n- b\n+ B", want: "def f\n A\n B\n"},
		{name: "insert under an anchor", file: "def f\n a\n", diff: "@@ def f\n+ x", want: "def f\n x\n a\n"},
		{name: "insert under a missing anchor", file: "def f\n a\n", diff: "@@ def g\n+ x", err: `no line "def g"`},
		{name: "unified header is no anchor", file: "a\nb\n", diff: "@@ -1,2 +1,2 @@\n a\n-b\n+B", want: "a\nB\n"},
		{name: "insert without a place", file: "a\nb\n", diff: "+x", err: "does not say where"},

		{name: "end of file", file: "x\na\nx\na\n", diff: " x\n-a\n+A\n*** End of File", want: "x\na\nx\nA\n"},
		{name: "append at the end", file: "l1\nl2\n", diff: "+l3\n*** End of File", want: "l1\nl2\nl3\n"},
		{name: "not at the end", file: "a\nb\nc\n", diff: "-b\n+B\n*** End of File", err: "not at the end of the file, but at line 2"},

		{name: "out of order", file: "a\nb\nc\nd\n", diff: "@@\n-c\n+C\n@@\n-a\n+A", want: "A\nb\nC\nd\n"},
		{name: "shared context", file: "a\nb\nc\n", diff: "@@\n-a\n+A\n b\n@@\n b\n-c\n+C", want: "A\nb\nC\n"},
		{name: "same line twice", file: "a\nb\n", diff: "@@\n-a\n+A\n b\n@@\n-a\n+X\n b", err: "two hunks change line 1"},
		{
			name: "nearest place", file: "one\ntwo\nthree\nfour\n", diff: " one\n two\n-tree\n+x",
			err: `The nearest place is line 1, where 2 of 3 lines agree; line 3 differs: the patch has "tree", the file has "three"`,
		},
		{name: "nothing there", file: "one\n", diff: "-zzz\n+x", err: "none of its lines is in the file"},
		{name: "empty file", file: "", diff: "-zzz\n+x", err: "the file is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hunks, err := patch.ParseHunks(tt.diff)
			if err != nil {
				t.Fatal(err)
			}
			got, notes, err := patch.Update([]byte(tt.file), hunks)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %q, error %v, want an error with %q", got, err, tt.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, string(got)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			var first string
			if len(notes) > 0 {
				first = notes[0].Message
			}
			if !strings.Contains(first, tt.note) || (tt.note == "") != (first == "") {
				t.Errorf("note %q, want %q", first, tt.note)
			}
		})
	}
}

// Every failing hunk is told at once, so that a model mends all of them in one turn.
func TestUpdateTellsAllFailures(t *testing.T) {
	hunks, err := patch.ParseHunks("@@\n-nope\n+x\n@@\n-b\n+B\n@@\n-neither\n+y")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = patch.Update([]byte("a\nb\n"), hunks)
	if err == nil || !strings.Contains(err.Error(), "hunk 1") && !strings.Contains(err.Error(), "nope") || !strings.Contains(err.Error(), "neither") {
		t.Fatalf("got %v", err)
	}
}

// A random edit, written as a patch, gives the edited file whatever its endings.
func TestUpdateIsWhatTheEditWas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := r.IntN(40) + 1
		var before, after, diff bytes.Buffer
		last := n - 1
		open := r.IntN(2) == 0
		for i := range n {
			end := []string{"\n", "\r\n"}[r.IntN(2)]
			if i == last && open {
				end = ""
			}
			line := fmt.Sprintf("line %d of %d", i, n)
			before.WriteString(line + end)
			switch op := r.IntN(5); {
			case op == 0:
				fmt.Fprintf(&diff, "-%s\n+changed %d\n", line, i)
				after.WriteString(fmt.Sprintf("changed %d", i) + end)
			default:
				fmt.Fprintf(&diff, " %s\n", line)
				after.WriteString(line + end)
			}
		}
		hunks, err := patch.ParseHunks(diff.String())
		if err != nil {
			continue // nothing was changed
		}
		got, notes, err := patch.Update(before.Bytes(), hunks)
		if err != nil || len(notes) > 0 || !bytes.Equal(got, after.Bytes()) {
			t.Fatalf("before %q\ndiff %q\ngot %q\nwant %q\n%v %v", before.String(), diff.String(), got, after.String(), notes, err)
		}
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add("a\nb\nc\n", " a\n-b\n+B\n c")
	f.Add("\xef\xbb\xbfa\r\nb", "@@ a\n+x\n*** End of File")
	f.Add("x\n x\n\tx\n", "@@ x\n@@ y\n-x\n+y")
	f.Fuzz(func(t *testing.T, file, diff string) {
		hunks, err := patch.ParseHunks(diff)
		if err != nil {
			return
		}
		got, _, err := patch.Update([]byte(file), hunks)
		if err != nil {
			return
		}
		// What is neither removed nor added stays: the number of lines tells.
		added, removed := 0, 0
		for _, h := range hunks {
			for _, l := range h.Lines {
				switch l.Kind {
				case patch.Insert:
					added++
				case patch.Remove:
					removed++
				case patch.Context:
				}
			}
		}
		count := func(s string) int {
			n := strings.Count(s, "\n")
			if s != "" && !strings.HasSuffix(s, "\n") {
				n++
			}
			return n
		}
		body := func(s string) string { return strings.TrimPrefix(s, "\xef\xbb\xbf") }
		// An empty last line without newline cannot be told from none.
		if d := count(body(string(got))) - count(body(file)) - added + removed; d != 0 && d != -1 {
			t.Fatalf("file %q diff %q got %q: %d lines off", file, diff, got, d)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"*** Begin Patch\n*** Add File: a\n+x\n*** End Patch",
		"*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ f\n-x\n+y\n*** End of File\n*** Delete File: c\n*** End Patch\n",
		"```\n*** Begin Patch\n*** Delete File: c\n*** End Patch\n```",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := patch.Parse(s)
		if err != nil {
			if patch.KindOf(err) == "" {
				t.Fatalf("an untyped error: %v", err)
			}
			return
		}
		for _, sec := range p.Sections {
			if sec.Path == "" || sec.At < 1 {
				t.Fatalf("%+v", sec)
			}
		}
		_, _ = patch.ParseJSON(s)
	})
}

// The benchmarks' work is 200 hunks over 10,000 lines. The floor is a search that only goes forward and compares exactly.
func BenchmarkUpdate(b *testing.B) {
	file, exact, _ := workload(b, false)
	_, fuzzy, _ := workload(b, true)
	for _, bb := range []struct {
		name string
		diff string
	}{{"exact", exact}, {"fuzzy", fuzzy}} {
		hunks, err := patch.ParseHunks(bb.diff)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if _, _, err := patch.Update(file, hunks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func workload(tb testing.TB, fuzzy bool) (file []byte, diff string, want []byte) {
	tb.Helper()
	var f, d, w bytes.Buffer
	for i := range 10_000 {
		line := fmt.Sprintf("    line %d with some words to make it as long as code is", i)
		f.WriteString(line + "\n")
		shown := line
		if fuzzy {
			shown += "  "
		}
		switch i % 50 {
		case 24:
			d.WriteString("@@\n " + shown + "\n")
			w.WriteString(line + "\n")
		case 25:
			d.WriteString("-" + shown + "\n+    changed\n")
			w.WriteString("    changed\n")
		case 26:
			d.WriteString(" " + shown + "\n")
			w.WriteString(line + "\n")
		default:
			w.WriteString(line + "\n")
		}
	}
	return f.Bytes(), d.String(), w.Bytes()
}

func TestUpdateTwoHundredHunks(t *testing.T) {
	for _, fuzzy := range []bool{false, true} {
		file, diff, want := workload(t, fuzzy)
		hunks, err := patch.ParseHunks(diff)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := patch.Update(file, hunks)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("fuzzy %v: %v", fuzzy, err)
		}
	}
}
