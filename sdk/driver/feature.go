// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/berth-dev/berth/sdk/errs"

// Path points into a configuration body.
type Path []errs.PathStep

// Feature is a word of the feature registry. Words are only ever added; both sides ignore those they do not know.
type Feature string

// The registry. The comment says what a driver promises; the conformance group of the same prefix proves it.
const (
	ProcAttach   Feature = "proc.attach"   // a process outlives the driver process; output is replayed from an offset
	ProcPTY      Feature = "proc.pty"      // terminals, with resize
	ProcSignal   Feature = "proc.signal"   // any signal, to the leader or the whole tree
	ProcList     Feature = "proc.list"     // processes can be listed
	ProcUser     Feature = "proc.user"     // per-command user
	ProcDetached Feature = "proc.detached" // a process outlives its caller
	ProcCwd      Feature = "proc.cwd"      // per-command directory

	FilesNative   Feature = "files.native"    // FileSystem without a shell
	FilesRange    Feature = "files.range"     // reads of a part
	FilesAtomic   Feature = "files.atomic"    // writes by rename
	FilesWatch    Feature = "files.watch"     // change events
	FilesRawNames Feature = "files.raw_names" // names that are not UTF-8
	FilesSymlinks Feature = "files.symlinks"  // links are kept as links

	TreeNative   Feature = "tree.native"    // TreeIO without tar in the sandbox
	TreeZstd     Feature = "tree.zstd"      // compressed streams
	TreeHostRefs Feature = "tree.host_refs" // archives that name host files
	TreeTemplate Feature = "tree.template"  // a materialised workspace is reused by key

	SnapNative Feature = "snap.native" // the kind's own snapshots
	SnapMemory Feature = "snap.memory" // with memory

	PortHTTP    Feature = "port.http"    // addresses for HTTP
	PortTCP     Feature = "port.tcp"     // addresses for TCP
	PortForward Feature = "port.forward" // connections through the driver
	PortPublic  Feature = "port.public"  // addresses that anybody reaches
	PortDynamic Feature = "port.dynamic" // ports that were not asked for at create

	LifeResume   Feature = "life.resume"
	LifeStop     Feature = "life.stop"
	LifePause    Feature = "life.pause"
	LifeDeadline Feature = "life.deadline"
	LifeList     Feature = "life.list"
	LifeWatch    Feature = "life.watch"

	AcctNative    Feature = "acct.native"    // users and groups without useradd
	EnvPerExec    Feature = "env.per_exec"   // environment of one command
	EnvSecret     Feature = "env.secret"     // secret environment is kept out of every record
	NetPolicy     Feature = "net.policy"     // network none and allow lists
	GPU           Feature = "gpu"            //
	StateUpgrade  Feature = "state.upgrade"  // older states can be resumed
	ConfigUnknown Feature = "config.unknown" // Validate accepts unknown values
	PathGrants    Feature = "path.grants"    // host paths made visible
)
