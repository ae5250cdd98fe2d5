// SPDX-License-Identifier: Apache-2.0

// Package api is the requests that a host sends to a guest and what comes back.
//
// Each request is one stream of package link. It opens with a [Request]; data, control messages and at the end a
// [Result] follow. Small things are JSON, listings and content are bytes.
package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Op names what a request wants.
type Op string

// The requests. The comment says what flows besides the result: → to the guest, ← from it.
const (
	OpRun       Op = "run"       // Run; → stdin, end; ← Started, output, Gap; result Exit
	OpAttach    Op = "attach"    // Attach; the same
	OpSignal    Op = "signal"    // Signal
	OpResize    Op = "resize"    // Resize
	OpProcesses Op = "processes" // ← JSON of []driver.Process as data
	OpDial      Op = "dial"      // Dial; ← connected as control; data both ways
	OpWatch     Op = "watch"     // ← driver.Event as control
	OpAccounts  Op = "accounts"  // driver.Accounts
	OpShutdown  Op = "shutdown"

	OpStat    Op = "stat"   // Stat; ← entries
	OpList    Op = "list"   // List; ← entries
	OpOpen    Op = "open"   // Open; ← entry as control, content; or entry with the file
	OpWrite   Op = "write"  // Write; → content, end, or see SubLarge; result WriteResult
	OpMkdir   Op = "mkdir"  // Mkdir
	OpRemove  Op = "remove" // Remove
	OpMove    Op = "move"   // Move
	OpSetMeta Op = "set_meta"
	OpExport  Op = "export" // Export; ← archive
	OpImport  Op = "import" // Import; → archive, end; result ImportResult
)

// The kinds of data and control messages.
const (
	SubStdin   uint8 = 0
	SubStdout  uint8 = 1
	SubStderr  uint8 = 2
	SubStarted uint8 = 3 // control: Started
	SubGap     uint8 = 4 // control: driver.Gap
	SubEntries uint8 = 5 // data: entries, see AppendEntry
	SubContent uint8 = 6
	SubEvent   uint8 = 7 // control: driver.Event
	SubReady   uint8 = 8 // control: the request has begun
	SubFile    uint8 = 9 // control: the same, with the open file instead of what would follow

	// SubLarge, a control message instead of the first content of a write, asks for the file: whoever has the content
	// writes it there. The guest answers with SubFile and a [Size], the most that the file may hold; or with SubReady,
	// and then content is sent, as it is when the file did not arrive. SubWritten, with the [Size] that the file has
	// now, comes before the end.
	SubLarge   uint8 = 10
	SubWritten uint8 = 11
)

// Text is a string of bytes that need not be UTF-8. In JSON it is a string when it can be, else an object with base64.
type Text string

type rawText struct {
	Base64 string `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(rawText{base64.StdEncoding.EncodeToString([]byte(t))})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var r rawText
		if err := json.Unmarshal(b, &r); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(r.Base64)
		*t = Text(raw)
		return err
	}
	var s string
	err := json.Unmarshal(b, &s)
	*t = Text(s)
	return err
}

// Texts converts strings.
func Texts(ss []string) []Text {
	ts := make([]Text, len(ss))
	for i, s := range ss {
		ts[i] = Text(s)
	}
	return ts
}

// Strings converts back.
func Strings(ts []Text) []string {
	ss := make([]string, len(ts))
	for i, t := range ts {
		ss[i] = string(t)
	}
	return ss
}

// Request opens a stream.
type Request struct {
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// NewRequest encodes a request.
func NewRequest(op Op, args any) ([]byte, error) {
	r := Request{Op: op}
	if args != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		r.Args = b
	}
	return json.Marshal(r)
}

// Result ends a stream.
type Result struct {
	Error *Error          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// NewResult encodes value, or err when it is not nil.
func NewResult(value any, err error) []byte {
	var r Result
	if err == nil && value != nil {
		r.Value, err = json.Marshal(value)
	}
	if err != nil {
		r = Result{Error: NewError(err)}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	return b
}

// Error is an *errs.Error on its way.
type Error struct {
	Code         errs.Code       `json:"code"`
	Op           string          `json:"op,omitempty"`
	Message      Text            `json:"message,omitempty"`
	Hint         string          `json:"hint,omitempty"`
	Retry        errs.Retry      `json:"retry,omitempty"`
	RetryAfter   time.Duration   `json:"retry_after,omitempty"`
	Context      map[string]Text `json:"context,omitempty"`
	MaybeApplied bool            `json:"maybe_applied,omitempty"`
}

// NewError takes what can travel of err.
func NewError(err error) *Error {
	e, ok := err.(*errs.Error) //nolint:errorlint // one that is deeper has had words put around it
	if !ok {
		e = &errs.Error{Code: errs.CodeOf(err), Err: err}
		if deeper, ok := errors.AsType[*errs.Error](err); ok {
			inner := *deeper
			inner.Op, inner.Message, inner.Err = "", "", err
			e = &inner
		}
	}
	plain := *e
	plain.Op = ""
	w := &Error{
		Code: e.Code, Op: e.Op, Message: Text(plain.Error()), Hint: e.Hint,
		Retry: e.Retry, RetryAfter: e.RetryAfter, MaybeApplied: e.MaybeApplied,
	}
	for k, v := range e.Context {
		if w.Context == nil {
			w.Context = map[string]Text{}
		}
		w.Context[k] = Text(v)
	}
	return w
}

// Err makes an *errs.Error again.
func (w *Error) Err() error {
	e := &errs.Error{
		Code: w.Code, Op: w.Op, Message: string(w.Message), Hint: w.Hint,
		Retry: w.Retry, RetryAfter: w.RetryAfter, MaybeApplied: w.MaybeApplied,
	}
	for k, v := range w.Context {
		e = e.With(k, string(v))
	}
	return e
}

// Hello is what a guest says about itself.
type Hello struct {
	Version   string             `json:"version"`
	Instance  string             `json:"instance"`
	OS        string             `json:"os"`
	Arch      string             `json:"arch"`
	PID       int64              `json:"pid"`
	Root      string             `json:"root"`
	Started   time.Time          `json:"started"`
	Isolation []driver.Isolation `json:"isolation,omitempty"`
	// SilenceMS is how long the guest bears it that its host says nothing, in milliseconds; 0 = as long as is usual.
	SilenceMS int64 `json:"silence_ms,omitempty"`
}

// Command is a driver.Command on its way.
type Command struct {
	ID          string          `json:"id"`
	Argv        []Text          `json:"argv"`
	Env         map[string]Text `json:"env,omitempty"`
	SecretEnv   map[string]Text `json:"secret_env,omitempty"`
	Dir         Text            `json:"dir,omitempty"`
	User        string          `json:"user,omitempty"`
	TTY         bool            `json:"tty,omitempty"`
	Size        driver.Size     `json:"size,omitzero"`
	Timeout     time.Duration   `json:"timeout,omitempty"`
	KillGrace   time.Duration   `json:"kill_grace,omitempty"`
	Detached    bool            `json:"detached,omitempty"`
	ReplayBytes uint64          `json:"replay_bytes,omitempty"`
}

func texts(m map[string]string) map[string]Text {
	if len(m) == 0 {
		return nil
	}
	t := make(map[string]Text, len(m))
	for k, v := range m {
		t[k] = Text(v)
	}
	return t
}

func plain(m map[string]Text) map[string]string {
	if len(m) == 0 {
		return nil
	}
	t := make(map[string]string, len(m))
	for k, v := range m {
		t[k] = string(v)
	}
	return t
}

// NewCommand converts a command.
func NewCommand(c *driver.Command) Command {
	return Command{
		ID: c.ID, Argv: Texts(c.Argv), Env: texts(c.Env), SecretEnv: texts(c.SecretEnv), Dir: Text(c.Dir), User: c.User,
		TTY: c.TTY, Size: c.Size, Timeout: c.Timeout, KillGrace: c.KillGrace, Detached: c.Detached, ReplayBytes: c.ReplayBytes,
	}
}

// Driver converts back.
func (c *Command) Driver() *driver.Command {
	return &driver.Command{
		ID: c.ID, Argv: Strings(c.Argv), Env: plain(c.Env), SecretEnv: plain(c.SecretEnv), Dir: string(c.Dir), User: c.User,
		TTY: c.TTY, Size: c.Size, Timeout: c.Timeout, KillGrace: c.KillGrace, Detached: c.Detached, ReplayBytes: c.ReplayBytes,
	}
}

// Attach follows a process.
type Attach struct {
	ID     string `json:"id"`
	Offset uint64 `json:"offset"`
}

// Signal is for a process.
type Signal struct {
	ID string `json:"id"`
	driver.Signal
}

// Resize is for a process's terminal.
type Resize struct {
	ID string `json:"id"`
	driver.Size
}

// Process is a driver.Process on its way.
type Process struct {
	driver.Process
	Argv []Text
}

// Dial connects to a port.
type Dial struct {
	Port uint16 `json:"port"`
}

// Stat asks about files.
type Stat struct {
	Paths []Text `json:"paths"`
	driver.StatOptions
}

// List lists a directory.
type List struct {
	Path    Text   `json:"path"`
	Exclude []Text `json:"exclude,omitempty"`
	driver.ListOptions
}

// PassSize is the least that is left to read of a file that is passed, and the least that is written to one: below it a
// descriptor costs more than the content.
const PassSize = 256 << 10

// Open reads a file.
type Open struct {
	Path Text `json:"path"`
	// Pass asks for the open file itself instead of its content, with the entry, if the guest can and the file is large.
	Pass bool `json:"pass,omitempty"`
	driver.ReadOptions
}

// Write writes a file.
type Write struct {
	Path Text `json:"path"`
	driver.WriteOptions
}

// Size is a number of bytes.
type Size struct {
	Bytes uint64 `json:"bytes"`
}

// WriteResult is a driver.WriteResult on its way: an entry, and the hash, but of what the host wrote itself.
type WriteResult struct {
	Entry  []byte `json:"entry"`
	SHA256 []byte `json:"sha256,omitempty"`
}

// Mkdir makes a directory.
type Mkdir struct {
	Path    Text   `json:"path"`
	Mode    uint32 `json:"mode"`
	Parents bool   `json:"parents"`
	User    string `json:"user,omitempty"`
}

// Remove removes a file or a tree.
type Remove struct {
	Path      Text   `json:"path"`
	Recursive bool   `json:"recursive"`
	User      string `json:"user,omitempty"`
}

// Move renames.
type Move struct {
	From    Text   `json:"from"`
	To      Text   `json:"to"`
	Replace bool   `json:"replace"`
	User    string `json:"user,omitempty"`
}

// SetMeta changes what is not content.
type SetMeta struct {
	Path Text `json:"path"`
	driver.MetaChange
}

// Export sends a tree.
type Export struct {
	Path    Text   `json:"path"`
	Exclude []Text `json:"exclude,omitempty"`
	driver.ExportOptions
}

// Import takes a tree.
type Import struct {
	Path Text `json:"path"`
	driver.ImportOptions
}

// ImportResult is a driver.ImportResult on its way.
type ImportResult struct {
	Members, Bytes uint64
	Skipped        []Skipped
	// More is how many were left out of Skipped because there were too many to send.
	More int `json:",omitempty"`
}

// Skipped is a driver.Skipped on its way.
type Skipped struct{ Path, Reason Text }
