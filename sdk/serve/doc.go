// SPDX-License-Identifier: Apache-2.0

// Package serve makes a driver binary out of a [driver.Driver]:
//
//	func main() { serve.Main(New) }
//
// The binary serves the driver protocol when berth starts it, and has the subcommands describe, version, cleanup and serve.
//
// # The life of a driver process
//
// Berth starts it with a pipe as its standard input that is held open and never written to. The end of that pipe means
// that the core is gone, however it went: the driver takes no more work, parks or ends its sandboxes as the orphan
// policy says, within 10 seconds, removes its socket and ends. SIGTERM does the same. SIGINT and SIGHUP belong to the
// terminal's foreground program and are ignored.
//
// # A driver in a debugger
//
// The subcommand serve starts a driver that no core has started, and prints a line for the variable
// [handshake.EnvReattach] of berth. Any number of cores may come and go, with the same key and as the same user; none of
// them ends the driver. Ctrl-C does.
//
// # What a driver may do
//
// Print: standard output becomes standard error before the driver is made, so that nothing that it or a child prints can
// be taken for the protocol. Log: to the logger it was made with, through log/slog or through log, all of it arrives in
// the core's log at its level, without the secrets that the SDK knows. Panic: the call fails, the process goes on.
package serve
