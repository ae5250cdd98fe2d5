// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/internal/redact"
)

const (
	// maxLine bounds a line of the log: the host takes lines of 64 KiB and more to pieces.
	maxLine = 48 << 10
	// maxValue is what remains of each long text in a line that is cut.
	maxValue = 4 << 10
)

// newLogger logs JSON lines for the core, and makes log/slog and log do the same.
func newLogger(name string, w io.Writer, set *redact.Set) hclog.Logger {
	l := hclog.New(&hclog.LoggerOptions{
		Name: name, Output: lineWriter{w, set}, Level: hclog.Info, JSONFormat: true,
	})
	slog.SetDefault(slog.New(slogHandler{log: l}))
	return l
}

// lineWriter takes one line at a time, takes secrets out of it and cuts it.
type lineWriter struct {
	w   io.Writer
	set *redact.Set
}

func (l lineWriter) Write(p []byte) (int, error) {
	line := l.set.String(string(p))
	if len(line) > maxLine {
		line = cutLine(line)
	}
	if _, err := io.WriteString(l.w, line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// cutLine shortens the texts of a JSON line, so that it stays one.
func cutLine(line string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(line), &fields) != nil {
		return line[:maxLine] + "\n"
	}
	out := map[string]any{}
	room := maxLine - 1<<10
	for _, first := range []bool{true, false} {
		for k, v := range fields {
			if strings.HasPrefix(k, "@") != first {
				continue
			}
			v = shorten(v)
			b, err := json.Marshal(v)
			if err != nil || len(b)+len(k) > room {
				v = "(cut)"
				b = nil
			}
			if room -= len(b) + len(k) + 16; room > 0 {
				out[k] = v
			}
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return line[:maxLine] + "\n"
	}
	return string(b) + "\n"
}

func shorten(v any) any {
	s, ok := v.(string)
	if !ok || len(s) <= maxValue {
		return v
	}
	return strings.ToValidUTF8(s[:maxValue], "") + "… (cut)"
}

// slogHandler passes records of log/slog to hclog.
type slogHandler struct {
	log   hclog.Logger
	group string
}

// Enabled follows the level of the logger.
func (h slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.log.GetLevel() <= level(l)
}

// Handle logs one record.
func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		args = appendAttr(args, h.group, a)
		return true
	})
	h.log.Log(level(r.Level), r.Message, args...)
	return nil
}

// WithAttrs adds attributes to every record.
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var args []any
	for _, a := range attrs {
		args = appendAttr(args, h.group, a)
	}
	return slogHandler{h.log.With(args...), h.group}
}

// WithGroup prefixes the names of later attributes.
func (h slogHandler) WithGroup(name string) slog.Handler {
	return slogHandler{h.log, h.group + name + "."}
}

func appendAttr(args []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(args, prefix+a.Key, v.Any())
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range v.Group() {
		args = appendAttr(args, prefix, inner)
	}
	return args
}

func level(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelDebug:
		return hclog.Trace
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	default:
		return hclog.Error
	}
}
