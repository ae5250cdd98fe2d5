// SPDX-License-Identifier: Apache-2.0

// Package life holds the checks of a sandbox's life, from create to destroy (lifecycle), and of its users (accounts).
package life

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// lost are the codes of a sandbox that is not there.
var lost = []errs.Code{errs.SandboxUnknown, errs.SandboxGone}

func Lifecycle() suite.Group {
	resume, list := kit.Needs(driver.LifeResume), kit.Needs(driver.LifeList)
	return suite.Group{
		Name: "lifecycle", Doc: "sandboxes are created once, found again, and leave nothing",
		Checks: []suite.Check{
			{Name: "create", Func: create},
			{Name: "create-same-id", Func: createSameID},
			{Name: "create-same-id-at-once", Func: createAtOnce},
			{Name: "create-same-id-in-new-process", Process: true, Needs: resume, Func: createInNewProcess},
			{Name: "create-many", Func: createMany},
			{Name: "create-cancelled", Func: createCancelled},
			{Name: "create-cancelled-at-once", Func: createCancelledAtOnce},
			{Name: "apart", Func: apart},
			{Name: "workspace", Func: workspace},
			{Name: "workspace-mode", Func: workspaceMode},
			{Name: "environment", Func: environment},
			{Name: "environment-of-today", Needs: kit.Needs(driver.LifeResume), Func: environmentOfToday},
			{Name: "destroy-again", Func: destroyAgain},
			{Name: "destroy-at-once", Func: destroyAtOnce},
			{Name: "destroy-ends-commands", Func: destroyEndsCommands},
			{Name: "destroyed-is-gone", Func: destroyedIsGone},
			{Name: "destroy-in-new-process", Process: true, Needs: resume, Func: destroyInNewProcess},
			{Name: "unknown-id", Func: unknownID},
			{Name: "empty-id", Func: emptyID},
			{Name: "resume", Needs: resume, Func: resumeHere},
			{Name: "resume-again", Needs: resume, Func: resumeAgain},
			{Name: "resume-in-new-process", Process: true, Needs: resume, Func: resumeInNewProcess},
			{Name: "resume-destroyed", Needs: resume, Func: resumeDestroyed},
			{Name: "resume-destroyed-in-new-process", Process: true, Needs: resume, Func: resumeDestroyedInNewProcess},
			{Name: "resume-makes-nothing", Process: true, Needs: kit.Needs(driver.LifeResume, driver.LifeList), Proves: resume, Func: resumeMakesNothing},
			{Name: "resume-nonsense", Needs: resume, Func: resumeNonsense},
			{Name: "resume-other-version", Needs: resume, Func: resumeOtherVersion},
			{Name: "states-of-before", Needs: resume, Unless: driver.StateUpgrade, Func: statesOfBefore},
			{Name: "state-upgrade", Needs: kit.Needs(driver.StateUpgrade), Func: stateUpgrade},
			{Name: "state-size", Func: stateSize},
			{Name: "state-holds-no-secret", Func: stateSecrets},
			{Name: "inspect", Func: inspect},
			{Name: "labels", Needs: list, Func: labels},
			{Name: "list-all-labels", Needs: list, Func: listAllLabels},
			{Name: "list-nothing", Needs: list, Func: listNothing},
			{Name: "list-destroyed", Needs: list, Func: listDestroyed},
			{Name: "list-in-new-process", Process: true, Needs: list, Func: listInNewProcess},
			{Name: "stop", Needs: kit.Needs(driver.LifeStop), Func: stop},
			{Name: "stop-again", Needs: kit.Needs(driver.LifeStop), Func: stopAgain},
			{Name: "stop-keeps-workspace", Needs: kit.Needs(driver.LifeStop, driver.LifeResume), Func: stopKeeps},
			{Name: "stop-keeps-workspace-in-new-process", Process: true, Needs: kit.Needs(driver.LifeStop, driver.LifeResume), Func: stopKeepsInNewProcess},
			{Name: "stop-without-workspace", Needs: kit.Needs(driver.LifeStop, driver.LifeResume), Proves: kit.Needs(driver.LifeStop), Func: stopForgets},
			{Name: "stopped-runs-nothing", Needs: kit.Needs(driver.LifeStop), Func: stoppedRunsNothing},
			{Name: "stopped-is-destroyed", Needs: kit.Needs(driver.LifeStop), Func: stoppedIsDestroyed},
			{Name: "pause", Needs: kit.Needs(driver.LifePause), Func: pause},
			{Name: "deadline-of-create", Needs: kit.Needs(driver.LifeDeadline), Func: deadlineOfCreate},
			{Name: "deadline-moves", Needs: kit.Needs(driver.LifeDeadline), Func: deadlineMoves},
			{Name: "deadline-only-moves-when-told", Needs: kit.Needs(driver.LifeDeadline), Func: deadlineStays},
			{Name: "watch-ends-with-caller", Needs: kit.Needs(driver.LifeWatch), Func: watchEnds},
			{Name: "watch-ends-with-sandbox", Needs: kit.Needs(driver.LifeWatch), Func: watchDestroyed},
			{Name: "drain-parks", Process: true, Needs: resume, Func: drainParks},
			{Name: "drain-refuses-work", Process: true, Func: drainRefuses},
			{Name: "network-none", Needs: kit.Needs(driver.NetPolicy), Func: networkNone},
			{Name: "network-nonsense", Func: networkNonsense},
			{Name: "grants", Needs: kit.Needs(driver.PathGrants), Func: grants},
			{Name: "grants-read-only", Needs: kit.Needs(driver.PathGrants), Func: grantsReadOnly},
		},
	}
}
