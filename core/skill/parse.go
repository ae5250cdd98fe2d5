// SPDX-License-Identifier: Apache-2.0

package skill

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// Bounds of the format.
const (
	maxNameLength        = 64
	maxDescription       = 1024
	maxCompatibility     = 500
	maxDocument          = 1 << 20
	longDocument         = 500 // lines, above which a skill should be split
	noDescription        = "no description"
	skillFile            = "SKILL.md"
	levelError           = "error"
	levelWarning         = "warning"
	fence                = "---"
	byteOrderMark        = "\uFEFF"
	maxShownDescriptions = 32 << 10
)

// Finding is something that is not right about a skill.
type Finding struct {
	Path    string `json:"path"`  // of the file
	Level   string `json:"level"` // error or warning
	Message string `json:"message"`
}

// head is the frontmatter as far as it is used.
type head struct {
	name, description, compatibility string
}

var nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// known are the members that the format has.
var known = map[string]bool{"name": true, "description": true, "license": true, "compatibility": true, "metadata": true, "allowed-tools": true}

// parse reads a SKILL.md. It takes whatever can be understood, and says what is not as it should be.
func parse(dir, text string, add func(level, format string, args ...any)) head {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), byteOrderMark)
	if !utf8.ValidString(text) {
		add(levelWarning, "it is not UTF-8")
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	front, body, ok := split(text)
	var h head
	if !ok {
		add(levelError, "it has no frontmatter: the first line must be %q, and another one must end it", fence)
		body = text
	} else {
		h = members(front, add)
	}
	if h.name == "" {
		add(levelError, "the frontmatter has no name; the directory's is used")
		h.name = dir
	}
	h.name = strings.TrimSpace(h.name)
	switch {
	case len(h.name) > maxNameLength || !nameForm.MatchString(h.name):
		add(levelWarning, "the name %q is not of the form: small letters, digits and single hyphens, at most %d", h.name, maxNameLength)
	case h.name != dir:
		add(levelWarning, "the name %q is not that of the directory, %q", h.name, dir)
	}
	h.description = strings.Join(strings.Fields(h.description), " ")
	if h.description == "" {
		add(levelError, "the frontmatter has no description: an agent does not know when to use the skill")
		h.description = noDescription
	}
	if n := utf8.RuneCountInString(h.description); n > maxDescription {
		add(levelWarning, "the description has %d characters, more than %d, and is cut", n, maxDescription)
		h.description = string([]rune(h.description)[:maxDescription-1]) + "…"
	}
	if n := utf8.RuneCountInString(h.compatibility); n > maxCompatibility {
		add(levelWarning, "the compatibility has %d characters, more than %d", n, maxCompatibility)
	}
	if strings.TrimSpace(body) == "" {
		add(levelWarning, "it says nothing beside its frontmatter")
	}
	if n := strings.Count(body, "\n"); n > longDocument {
		add(levelWarning, "it has %d lines; what is not always needed should be in files of its own", n)
	}
	return h
}

func split(text string) (front, body string, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != fence {
		return "", "", false
	}
	for at := 0; at <= len(rest); {
		line, _, more := strings.Cut(rest[at:], "\n")
		if strings.TrimRight(line, " \t") == fence {
			return rest[:at], rest[min(at+len(line)+1, len(rest)):], true
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return "", "", false
}

// members reads the frontmatter as YAML. Where it is none, mostly for a colon in a text, each line is taken for itself.
func members(front string, add func(level, format string, args ...any)) head {
	var m map[string]any
	if err := yaml.Unmarshal([]byte(front), &m); err != nil {
		add(levelWarning, "the frontmatter is no YAML, and is read line by line: %s", firstLine(err.Error()))
		m = lines(front)
	}
	text := func(key string) string {
		switch v := m[key].(type) {
		case nil:
			return ""
		case string:
			return v
		default:
			add(levelWarning, "%s is no text", key)
			return fmt.Sprint(v)
		}
	}
	for key := range m {
		if !known[key] {
			add(levelWarning, "%q is not part of the format", key)
		}
	}
	return head{name: text("name"), description: text("description"), compatibility: text("compatibility")}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func lines(front string) map[string]any {
	m := map[string]any{}
	key := ""
	for line := range strings.Lines(front) {
		line = strings.TrimRight(line, "\n")
		name, v, ok := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
		case ok && name == strings.TrimSpace(name) && !strings.Contains(name, " "):
			key = name
			v = strings.TrimSpace(v)
			if v == "|" || v == ">" || v == "|-" || v == ">-" {
				v = ""
			}
			if n := len(v); n >= 2 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
				v = v[1 : n-1]
			}
			m[key] = v
		case key != "" && strings.TrimSpace(line) != "":
			before, _ := m[key].(string) // only texts are put in
			m[key] = strings.TrimSpace(before + " " + strings.TrimSpace(line))
		}
	}
	return m
}

// Serious reports whether the finding is an error.
func (f Finding) Serious() bool { return f.Level == levelError }
