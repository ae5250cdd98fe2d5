// SPDX-License-Identifier: Apache-2.0

// Package process holds the checks of commands (process) and of their terminals (pty).
package process

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

func Group() suite.Group {
	signal, detached, listed := kit.Needs(driver.ProcSignal), kit.Needs(driver.ProcDetached), kit.Needs(driver.ProcList)
	return suite.Group{
		Name: "process", Doc: "commands run, talk, end and are ended, whole trees included",
		Checks: []suite.Check{
			{Name: "exit-codes", Func: exitCodes},
			{Name: "exit-by-signal", Tools: []string{"kill"}, Func: exitBySignal},
			{Name: "not-found", Func: notFound},
			{Name: "not-executable", Func: notExecutable},
			{Name: "no-argv", Func: noArgv},
			{Name: "started-comes-first", Func: startedFirst},
			{Name: "stdout-and-stderr", Func: separation},
			{Name: "order-of-output", Func: order},
			{Name: "no-output", Func: noOutput},
			{Name: "no-newline", Func: noNewline},
			{Name: "binary-output", Func: binaryOutput},
			{Name: "output-of-100-MB", Tools: []string{"head"}, Func: muchOutput},
			{Name: "output-before-exit-is-whole", Func: outputWhole},
			{Name: "slow-reader", Func: slowReader},
			{Name: "output-is-counted", Func: outputCounted},
			{Name: "stdin", Func: stdinEcho},
			{Name: "stdin-of-10-MB", Func: stdinMuch},
			{Name: "stdin-none", Func: stdinNone},
			{Name: "stdin-ends", Func: stdinEnds},
			{Name: "stdin-unread", Func: stdinUnread},
			{Name: "stdin-in-turns", Func: stdinTurns},
			{Name: "arguments", Func: arguments},
			{Name: "arguments-not-UTF-8", Func: argumentsRaw},
			{Name: "argument-of-100-KB", Func: argumentLong},
			{Name: "environment", Needs: kit.Needs(driver.EnvPerExec), Func: commandEnv},
			{Name: "environment-odd-values", Needs: kit.Needs(driver.EnvPerExec), Func: commandEnvOdd},
			{Name: "environment-secret", Needs: kit.Needs(driver.EnvSecret), Func: commandSecret},
			{Name: "environment-secret-is-not-listed", Needs: kit.Needs(driver.EnvSecret, driver.ProcList), Proves: kit.Needs(driver.EnvSecret), Func: secretNotListed},
			{Name: "environment-of-the-host-stays-out", Func: hostEnv},
			{Name: "directory", Needs: kit.Needs(driver.ProcCwd), Func: directory},
			{Name: "directory-missing", Needs: kit.Needs(driver.ProcCwd), Func: directoryMissing},
			{Name: "user", Needs: kit.Needs(driver.ProcUser), Tools: []string{"id"}, Func: commandUser},
			{Name: "user-unknown", Needs: kit.Needs(driver.ProcUser), Func: userUnknown},
			{Name: "timeout", Func: timeout},
			{Name: "timeout-keeps-output", Func: timeoutOutput},
			{Name: "timeout-ends-the-tree", Tools: []string{"jobs", "setsid"}, Func: timeoutTree},
			{Name: "cancel", Func: cancelled},
			{Name: "cancel-ends-the-tree", Tools: []string{"jobs", "setsid"}, Func: cancelTree},
			{Name: "kill-grace-is-given", Tools: []string{"trap", "loops"}, Func: graceGiven},
			{Name: "kill-grace-ends", Func: graceEnds},
			{Name: "end-with-children", Tools: []string{"jobs"}, Func: endWithChildren},
			{Name: "many-at-once", Func: manyAtOnce},
			{Name: "many-in-turn", Func: manyInTurn},
			{Name: "same-id-is-the-same-process", Needs: detached, Func: sameID},
			{Name: "exec", Func: exec},
			{Name: "exec-bounded", Tools: []string{"loops"}, Func: execBounded},
			{Name: "exec-stdin", Func: execStdin},
			{Name: "signal", Needs: signal, Func: signalTree},
			{Name: "signal-reaches-the-tree", Needs: signal, Tools: []string{"trap", "jobs"}, Func: signalTrap},
			{Name: "signal-leader-only", Needs: signal, Tools: []string{"jobs", "trap"}, Func: signalLeader},
			{Name: "signal-by-stream", Needs: signal, Func: signalStream},
			{Name: "signal-unknown-process", Needs: signal, Func: signalUnknownProcess},
			{Name: "signal-unknown-name", Needs: signal, Func: signalUnknownName},
			{Name: "list", Needs: listed, Func: listProcesses},
			{Name: "list-ended", Needs: listed, Func: listEnded},
			{Name: "detached-goes-on", Needs: detached, Tools: []string{"loops"}, Func: detachedGoesOn},
			{Name: "attach-replays-exactly", Needs: detached, Func: attachReplays},
			{Name: "attach-from-an-offset", Needs: detached, Func: attachOffset},
			{Name: "attach-after-the-end", Needs: detached, Func: attachAfterEnd},
			{Name: "attach-twice", Needs: detached, Func: attachTwice},
			{Name: "attach-gap", Needs: detached, Func: attachGap},
			{Name: "attach-unknown", Func: attachUnknown},
			{Name: "attach-in-new-process", Process: true, Needs: kit.Needs(driver.ProcAttach, driver.LifeResume), Proves: kit.Needs(driver.ProcAttach), Func: attachNewProcess},
			{Name: "nobody-reads", Needs: detached, Func: nobodyReads},
		},
	}
}
