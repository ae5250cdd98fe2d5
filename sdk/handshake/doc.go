// SPDX-License-Identifier: Apache-2.0

// Package handshake is what core and driver must agree on before the first call: go-plugin's cookie and version, the
// names of the environment variables, and the transport credential.
//
// # The credential
//
// A driver listens on a unix socket in a directory that only its user may enter. On top of that each side asks the
// kernel for the peer's user, which must be its own, and makes the peer prove that it holds the key which the core put
// into the driver's environment:
//
//	core   → driver   "berth1\n", 32 random bytes c
//	driver → core     32 random bytes d, HMAC-SHA256(key, "driver" ‖ c ‖ d)
//	core   → driver   HMAC-SHA256(key, "core" ‖ c ‖ d)
//
// Then HTTP/2 follows in the clear. Both random values enter both proofs, so nothing recorded can be played back, and
// the names in front keep a proof from being reflected. There is no TLS: bytes on a unix socket cannot be read by
// anybody who could not read the key too.
//
// # The lifeline
//
// A driver's standard input is a pipe that the core holds open and never writes to. Its end means that the core is
// gone, however it went: the driver parks its sandboxes and ends.
package handshake
