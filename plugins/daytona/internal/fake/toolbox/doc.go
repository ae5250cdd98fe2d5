// SPDX-License-Identifier: Apache-2.0

// Package toolbox is a fake of the daemon that runs inside the vendor's sandboxes: processes, sessions, terminals and
// files over HTTP. It behaves like the real one where that is known, also where that is bad: output that is merged or cut
// into lines, sessions that `exit` hangs, errors without a body, sockets that are closed on slow readers.
package toolbox
