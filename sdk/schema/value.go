// SPDX-License-Identifier: Apache-2.0

package schema

// Value is a decoded configuration body on its way to the driver. Exactly one encoding is set; the zero Value is an
// empty body.
type Value struct {
	MsgPack []byte // cty's MessagePack
	JSON    []byte // cty's JSON
}
