// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxCommand bounds what is taken apart. A longer command is none that is understood.
	maxCommand = 64 << 10
	// maxParts bounds what one command is taken apart into.
	maxParts = 4096
	// maxNested bounds shells in shells.
	maxNested = 4
)

var (
	shells = []string{"bash", "sh", "dash", "zsh", "ksh", "ash"}
	// wrappers run what stands behind them.
	wrappers = []string{
		"env", "sudo", "doas", "nohup", "nice", "ionice", "time", "timeout", "xargs", "exec", "command", "builtin", "eval", "setsid",
		"stdbuf", "watch", "busybox", "find", "chroot", "unshare", "script", "flock", "parallel",
	}
)

// usualShell reports whether a call's wish for a shell is one that reads a command as it is read here.
func usualShell(wish string) bool {
	if wish == "" || slices.Contains(shells, wish) {
		return true
	}
	dir := path.Dir(wish)
	return (dir == "/bin" || dir == "/usr/bin") && slices.Contains(shells, path.Base(wish)) && wish == path.Clean(wish)
}

// Plain gives the words of a shell command, as the program would get them, when it is one plain command: a program's name
// and arguments that are fixed, quoted or not. It gives nil for everything else: lists, pipes, redirections, variables,
// substitutions, globs, assignments, keywords, background, or what is no shell.
func Plain(command string) []string {
	if len(command) > maxCommand || strings.ContainsFunc(command, control) {
		return nil
	}
	file, err := parse(command)
	if err != nil || len(file.Stmts) != 1 {
		return nil
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || s.Negated || s.Background || s.Coprocess || len(s.Redirs) > 0 || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return nil
	}
	words := make([]string, 0, len(call.Args))
	for _, w := range call.Args {
		text, ok := fixed(w)
		if !ok {
			return nil
		}
		words = append(words, text)
	}
	if words[0] == "" {
		return nil
	}
	return words
}

// parse reads a command as bash does. With an error there may be what was read before it.
func parse(command string, options ...syntax.ParserOption) (file *syntax.File, err error) {
	defer func() {
		if p := recover(); p != nil { // models write what they like, and the parser is not ours
			file, err = nil, fmt.Errorf("the parser failed: %v", p)
		}
	}()
	return syntax.NewParser(append(options, syntax.Variant(syntax.LangBash))...).Parse(strings.NewReader(command), "")
}

// control are the characters that shells and terminals disagree about.
func control(r rune) bool { return (r < ' ' && r != '\t' && r != '\n') || r == 0x7f || r == '\ufffd' }

// fixed is the value of a word that always has the same one.
func fixed(w *syntax.Word) (string, bool) {
	for i, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			// What is escaped stands for itself; what is left must mean nothing to any shell.
			bare := unescaped(p.Value)
			if strings.ContainsAny(bare, "*?[]{}$`!^=~") && (strings.ContainsAny(bare, "*?[]{}$`") || i == 0 && strings.ContainsAny(bare[:1], "!^=~")) {
				return "", false
			}
			if strings.Contains(bare, ":~") || strings.Contains(bare, "=~") {
				return "", false // some shells put a home directory there
			}
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false // not every shell knows it
			}
		case *syntax.DblQuoted:
			if p.Dollar || slices.ContainsFunc(p.Parts, func(in syntax.WordPart) bool { _, lit := in.(*syntax.Lit); return !lit }) {
				return "", false
			}
		default:
			return "", false
		}
	}
	fields, err := expand.Fields(nil, w)
	if err != nil || len(fields) != 1 {
		return "", false
	}
	return fields[0], true
}

// unescaped is a literal without the characters that a backslash stands before.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			b.WriteByte('x')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// join writes words as one command line, quoted only where it must be.
func join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		q, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			q = w // it holds what no command line can
		}
		out[i] = q
	}
	return strings.Join(out, " ")
}

// parts are the commands in a command, each in several writings, and the text itself.
func parts(command string) []string {
	t := &taker{seen: map[string]bool{}}
	t.add(command)
	t.take(command, 0)
	return t.out
}

type taker struct {
	out  []string
	seen map[string]bool
}

func (t *taker) add(text string) {
	if text != "" && !t.seen[text] && len(t.out) < maxParts {
		t.seen[text] = true
		t.out = append(t.out, text)
	}
}

func (t *taker) take(command string, depth int) {
	if len(command) > maxCommand || depth > maxNested || len(t.out) >= maxParts {
		return
	}
	// What comes before a mistake is run by a shell that reads line by line, so it counts.
	file, _ := parse(command, syntax.RecoverErrors(16))
	if file == nil {
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			t.call(call, depth)
		}
		return len(t.out) < maxParts
	})
}

// call adds a command: as it is written, in its plain form, without its directory, and behind its wrappers.
func (t *taker) call(call *syntax.CallExpr, depth int) {
	if len(call.Args) == 0 {
		return
	}
	words, raw := make([]string, len(call.Args)), make([]string, len(call.Args))
	for i, w := range call.Args {
		var b strings.Builder
		if syntax.NewPrinter().Print(&b, w) != nil {
			return
		}
		raw[i], words[i] = b.String(), b.String()
		if text, ok := fixed(w); ok {
			words[i] = text
		}
	}
	t.add(strings.Join(raw, " "))
	t.writings(words)
	name := path.Base(words[0])
	if !slices.Contains(shells, name) && !slices.Contains(wrappers, name) {
		return
	}
	if name == "eval" {
		t.take(strings.Join(words[1:], " "), depth+1)
	}
	for i := 1; i < len(words); i++ {
		t.writings(words[i:])
		if strings.ContainsAny(words[i], " \t\n;&|") {
			t.take(words[i], depth+1) // of sh -c, xargs sh -c, watch and others
		}
	}
}

func (t *taker) writings(words []string) {
	t.add(join(words))
	if base := path.Base(words[0]); base != words[0] {
		t.add(join(append([]string{base}, words[1:]...)))
	}
}
