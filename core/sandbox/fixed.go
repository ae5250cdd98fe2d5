// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
)

// Fixed is what a sandbox was made with and cannot be given anew: what the driver's schema calls immutable, and what a
// request to resume does not carry; and what else it was given.
type Fixed struct {
	// Salt keeps the hashes of secrets from being looked up elsewhere.
	Salt []byte `json:"salt"`
	// Values are JSON texts by attribute, as a person knows it. In place of a secret stands its hash.
	Values map[string]string `json:"values"`
	// Seen is what else of the configuration it was given, by name: kinds and hashes. nil = not known.
	Seen map[string]string `json:"seen,omitempty"`
}

const (
	secretMark = "(sensitive value "
	secretEnd  = ")"
)

// fixed gathers it. A salt makes it comparable with what was gathered before; nil = a new one.
func fixed(driverName string, s *schema.Schema, req *driver.CreateRequest, salt []byte) (*Fixed, error) {
	if salt == nil {
		salt = make([]byte, sha256.Size)
		rand.Read(salt) // crypto/rand.Read never fails: it ends the program instead
	}
	f := &Fixed{Salt: salt, Values: map[string]string{
		"driver":                 text(cty.StringVal(driverName)),
		"root of the manifest":   text(cty.StringVal(req.Workspace.Root)),
		"run_as of the agent":    text(cty.StringVal(req.RunAs)),
		"max of lifetime":        text(cty.StringVal(req.MaxLifetime.String())),
		"mode of network":        text(cty.StringVal(req.Network.Mode)),
		"allow of network":       text(list(req.Network.Allow)),
		"memory_bytes of limits": text(cty.NumberUIntVal(req.Limits.MemoryBytes)),
		"cpus of limits":         text(cty.NumberFloatVal(req.Limits.CPUs)),
		"owner of the workspace": text(cty.StringVal(req.Workspace.Owner)),
		"exposed_ports":          ports(req.Ports),
	}}
	for i := range req.Mounts {
		m := &req.Mounts[i]
		access := "read and write"
		if m.ReadOnly {
			access = "read-only"
		}
		f.Values["mount "+m.Path] = text(cty.StringVal(fmt.Sprintf("%s %s, %s %s", m.Kind, m.Source.JSON, access, m.StrategyConfig.JSON)))
	}
	if s == nil {
		return f, nil
	}
	config, err := req.Config.Cty(s)
	if err != nil {
		return nil, err
	}
	for name, v := range f.immutable(&s.Block, config) {
		f.Values[name+" of config"] = text(v)
	}
	return f, nil
}

// immutable is what remains of a block when only immutable attributes are left; nil when there is none.
func (f *Fixed) immutable(b *schema.Block, v cty.Value) map[string]cty.Value {
	out := map[string]cty.Value{}
	for i := range b.Attributes {
		a := &b.Attributes[i]
		switch {
		case !a.Immutable:
		case a.Sensitive:
			out[a.Name] = cty.StringVal(f.conceal(text(v.GetAttr(a.Name))))
		default:
			out[a.Name] = v.GetAttr(a.Name)
		}
	}
	for i := range b.Blocks {
		n := &b.Blocks[i]
		inner := v.GetAttr(n.Type)
		if inner.IsNull() || !inner.IsKnown() {
			continue
		}
		if n.Nesting == schema.Single {
			if kept := f.immutable(&n.Block, inner); len(kept) > 0 {
				out[n.Type] = cty.ObjectVal(kept)
			}
			continue
		}
		var all []cty.Value
		for _, e := range inner.Elements() {
			if kept := f.immutable(&n.Block, e); len(kept) > 0 {
				all = append(all, cty.ObjectVal(kept))
			}
		}
		if len(all) > 0 {
			out[n.Type] = cty.TupleVal(all)
		}
	}
	return out
}

func (f *Fixed) conceal(text string) string {
	m := hmac.New(sha256.New, f.Salt)
	m.Write([]byte(text))
	return secretMark + hex.EncodeToString(m.Sum(nil)) + secretEnd
}

// reveal is a value without the hashes of secrets.
func reveal(value string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(value, secretMark)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, value, _ = strings.Cut(rest, secretEnd)
		out.WriteString("(sensitive value)")
	}
}

// text is a value as a file would say it, nearly.
func text(v cty.Value) string {
	b, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		// It came out of an encoding that JSON has too.
		return v.GoString()
	}
	return string(b)
}

func list(items []string) cty.Value {
	all := make([]cty.Value, len(items))
	for i, s := range items {
		all[i] = cty.StringVal(s)
	}
	return cty.TupleVal(all)
}

func ports(all []uint16) string {
	items := make([]cty.Value, len(all))
	for i, p := range all {
		items[i] = cty.NumberUIntVal(uint64(p))
	}
	return text(cty.TupleVal(items))
}

// Shown is a value for a person, without the hashes of secrets.
func (f *Fixed) Shown(name string) string { return reveal(f.Values[name]) }
