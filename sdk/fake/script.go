// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// word is a word or an operator of a script.
type word struct {
	text string
	op   bool
}

// script runs a list of pipelines joined by ;, newlines, && and ||.
func script(f *frame, text string) (int, error) {
	words, err := split(text)
	if err != nil {
		return 2, f.err(fmt.Appendf(nil, "sh: %s\n", err))
	}
	code, run := 0, true
	var commands [][]word
	var current []word
	flush := func() error {
		if len(current) == 0 && len(commands) == 0 {
			return nil
		}
		all := append(commands, current)
		commands, current = nil, nil
		if !run {
			return nil
		}
		var err error
		f.env["?"] = strconv.Itoa(code)
		code, err = pipeline(f, all)
		return err
	}
	for _, w := range words {
		if !w.op || redirection(w.text) {
			current = append(current, w)
			continue
		}
		switch w.text {
		case "|":
			commands, current = append(commands, current), nil
			continue
		}
		if err := flush(); err != nil {
			return code, err
		}
		switch w.text {
		case "&&":
			run = run && code == 0
		case "||":
			run = !run || code != 0
		default:
			run = true
		}
	}
	err = flush()
	return code, err
}

func redirection(op string) bool {
	switch op {
	case ">", ">>", "2>", "2>>", ">&2", "2>&1", "<":
		return true
	}
	return false
}

// simple runs one command with its redirections and assignments.
func simple(f *frame, words []word) (int, error) {
	var args []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if !w.op {
			args = append(args, expand(w.text, f.env))
			continue
		}
		switch w.text {
		case ">&2":
			f.out = f.err
			continue
		case "2>&1":
			f.err = f.out
			continue
		}
		if i++; i >= len(words) {
			return 2, f.err([]byte("sh: syntax error: a file name is missing\n"))
		}
		if code, err := redirect(f, w.text, f.path(expand(words[i].text, f.env))); code != 0 || err != nil {
			return code, err
		}
	}
	for len(args) > 0 {
		name, value, ok := strings.Cut(args[0], "=")
		if !ok || strings.ContainsAny(name, "/ -") {
			break
		}
		f.env[name] = value
		args = args[1:]
	}
	if len(args) == 0 {
		return 0, nil
	}
	b := builtins(path.Base(args[0]))
	if b == nil {
		return 127, f.err(fmt.Appendf(nil, "sh: %s: not found\n", args[0]))
	}
	return b(f, args[1:])
}

func redirect(f *frame, op, file string) (int, error) {
	if op == "<" {
		data, err := f.p.s.fs.read(file)
		if err != nil {
			return f.complain("sh", err)
		}
		f.in = strings.NewReader(string(data))
		return 0, nil
	}
	if !strings.HasSuffix(op, ">>") {
		if err := f.p.s.fs.write(file, nil, false); err != nil {
			return f.complain("sh", err)
		}
	}
	to := func(b []byte) error {
		if err := f.p.s.fs.write(file, b, true); err != nil {
			return exited(1)
		}
		return nil
	}
	if strings.HasPrefix(op, "2") {
		f.err = to
	} else {
		f.out = to
	}
	return 0, nil
}

// quote marks bytes that a variable's $ inside single quotes must not mean anything for.
const quote = '\x01'

// split makes words of a script.
func split(text string) ([]word, error) {
	var out []word
	var b strings.Builder
	inWord := false
	end := func() {
		if inWord {
			out = append(out, word{text: b.String()})
			b.Reset()
			inWord = false
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\'' || c == '"':
			inWord = true
			j := i + 1
			for ; j < len(text) && text[j] != c; j++ {
				switch {
				case c == '"' && text[j] == '\\' && j+1 < len(text) && strings.IndexByte(`"\$`, text[j+1]) >= 0:
					j++
					b.WriteByte(quote)
				case c == '\'':
					b.WriteByte(quote)
				}
				b.WriteByte(text[j])
			}
			if j == len(text) {
				return nil, fmt.Errorf("syntax error: unterminated %c", c)
			}
			i = j
		case c == '\\' && i+1 < len(text):
			inWord = true
			i++
			b.WriteByte(quote)
			b.WriteByte(text[i])
		case c == ' ' || c == '\t':
			end()
		case c == '#' && !inWord:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		default:
			if op := operator(text[i:], inWord); op != "" {
				end()
				out = append(out, word{text: op, op: true})
				i += len(op) - 1
				continue
			}
			inWord = true
			b.WriteByte(c)
		}
	}
	end()
	return out, nil
}

func operator(s string, inWord bool) string {
	for _, op := range []string{"&&", "||", "2>&1", "2>>", "2>", ">&2", ">>", ">", "<", "|", ";", "\n"} {
		if strings.HasPrefix(s, op) && !(inWord && op[0] == '2') {
			return op
		}
	}
	return ""
}

// expand replaces variables.
func expand(s string, env map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == quote && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '$' && i+1 < len(s):
			name, n := variable(s[i+1:])
			if n == 0 {
				b.WriteByte('$')
				continue
			}
			b.WriteString(env[name])
			i += n
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func variable(s string) (name string, n int) {
	if s[0] == '?' || s[0] == '$' {
		return s[:1], 1
	}
	if s[0] == '{' {
		if end := strings.IndexByte(s, '}'); end > 0 {
			return s[1:end], end + 1
		}
		return "", 0
	}
	for n < len(s) && (s[n] == '_' || s[n] >= 'A' && s[n] <= 'Z' || s[n] >= 'a' && s[n] <= 'z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
		n++
	}
	return s[:n], n
}
