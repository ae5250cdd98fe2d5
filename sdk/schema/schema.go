// SPDX-License-Identifier: Apache-2.0

// Package schema describes a driver's configuration as data.
//
// A driver says which attributes and blocks it takes; the core decodes the user's HCL with it, checks it with file,
// line and snippet, and sends the driver a [Value], which [Value.Decode] puts into a Go struct.
package schema

// Schema describes one configuration body.
type Schema struct {
	Version uint32
	Block   Block
}

// Block is the inside of a body.
type Block struct {
	Doc        string
	Attributes []Attribute
	Blocks     []NestedBlock
}

// Attribute is one argument.
type Attribute struct {
	Name      string
	Type      Type
	Required  bool
	Default   any // nil = none; a Go value that fits Type
	Doc       string
	Sensitive bool // may hold a secret
	Immutable bool // may not change when a sandbox is resumed
	OneOf     []string
	Pattern   string // RE2
	Min, Max  *float64
	// Unit is "" or "bytes" or "duration": texts such as "512MiB" and "30s" are accepted beside numbers, and the
	// driver gets bytes or seconds.
	Unit          string
	Env           string // default from this environment variable of the core
	Deprecated    *Deprecation
	ConflictsWith []string
	Requires      []string
	Example       string // an HCL expression for documents
}

// Deprecation says what to use instead.
type Deprecation struct {
	Message     string
	Replacement string
}

// Nesting says how often a block may stand and what it becomes.
type Nesting uint8

// The ways of nesting.
const (
	Single Nesting = iota + 1 // at most one; a struct
	List                      // a list, in order
	Set                       // a set
	Map                       // keyed by the first label
)

// NestedBlock is a block inside a body.
type NestedBlock struct {
	Type     string
	Block    Block
	Nesting  Nesting
	Min, Max uint32 // 0 = no bound
	Labels   []string
}
