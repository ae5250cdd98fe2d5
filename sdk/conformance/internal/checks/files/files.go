// SPDX-License-Identifier: Apache-2.0

// Package files holds the checks of the group files: reading, writing, listing, names, links and watches.
package files

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

func Group() suite.Group {
	native, ranges, atomic := kit.Needs(driver.FilesNative), kit.Needs(driver.FilesRange), kit.Needs(driver.FilesAtomic)
	links, watch := kit.Needs(driver.FilesSymlinks), kit.Needs(driver.FilesWatch)
	ln := []string{"ln"}
	checks := []suite.Check{
		{Name: "write-and-read", Func: writeRead},
		{Name: "write-says-what-it-wrote", Func: writeResult},
		{Name: "sizes", Func: sizes},
		{Name: "64-MiB", Func: bigFile},
		{Name: "1-GB-sparse", Tools: []string{"sparse"}, Func: sparseFile},
		{Name: "seen-by-commands", Func: seenByCommands},
		{Name: "made-by-commands", Func: madeByCommands},
		{Name: "read-ranges", Proves: ranges, Func: readRanges},
		{Name: "read-past-the-end", Proves: ranges, Func: readPastEnd},
		{Name: "read-if-version", Func: readIfVersion},
		{Name: "read-given-up", Func: readGivenUp},
		{Name: "write-mode", Func: writeMode},
		{Name: "write-keeps-mode", Func: writeKeepsMode},
		{Name: "write-time", Func: writeTime},
		{Name: "write-exclusive", Func: writeExclusive},
		{Name: "write-exclusive-at-once", Func: writeExclusiveAtOnce},
		{Name: "write-parents", Func: writeParents},
		{Name: "write-without-parents", Func: writeNoParents},
		{Name: "write-append", Func: writeAppend},
		{Name: "write-in-place", Tools: []string{"hard"}, Func: writeInPlace},
		{Name: "write-if-version", Func: writeIfVersion},
		{Name: "write-to-a-directory", Func: writeDirectory},
		{Name: "write-is-atomic", Proves: atomic, Func: writeAtomic},
		{Name: "write-that-fails-changes-nothing", Proves: atomic, Func: writeFails},
		{Name: "write-given-up-changes-nothing", Proves: atomic, Func: writeGivenUp},
		{Name: "write-without-room", Func: fullDisk},
		{Name: "append-without-room", Func: fullDiskAppend},
		{Name: "write-at-once", Func: writeAtOnce},
		{Name: "write-leaves-nothing-else", Proves: atomic, Func: writeLeavesNothing},
		{Name: "versions", Func: versions},
		{Name: "stat", Func: statFile},
		{Name: "stat-many", Func: statMany},
		{Name: "stat-missing", Func: statMissing},
		{Name: "kinds", Tools: []string{"ln", "mkfifo"}, Func: kinds},
		{Name: "no-regular-file", Tools: []string{"mkfifo"}, Func: noRegular},
		{Name: "missing", Func: missing},
		{Name: "file-as-directory", Func: fileAsDirectory},
		{Name: "list", Func: listDir},
		{Name: "list-recursive", Func: listRecursive},
		{Name: "list-exclude", Func: listExclude},
		{Name: "list-limit", Func: listLimit},
		{Name: "list-of-10000", Tools: []string{"loops"}, Func: listMany},
		{Name: "list-errors", Func: listErrors},
		{Name: "mkdir", Func: mkdirs},
		{Name: "mkdir-parents", Func: mkdirParents},
		{Name: "mkdir-errors", Func: mkdirErrors},
		{Name: "remove", Func: remove},
		{Name: "remove-tree", Func: removeTree},
		{Name: "remove-errors", Func: removeErrors},
		{Name: "remove-root", Func: removeRoot},
		{Name: "move", Func: move},
		{Name: "move-replace", Func: moveReplace},
		{Name: "move-errors", Func: moveErrors},
		{Name: "set-mode", Func: setMode},
		{Name: "set-mode-of-a-tree", Func: setModeTree},
		{Name: "set-time", Func: setTime},
		{Name: "names", Func: oddNames},
		{Name: "names-of-255-bytes", Func: longNames},
		{Name: "names-not-UTF-8", Needs: kit.Needs(driver.FilesRawNames), Func: rawNames},
		{Name: "names-differ-by-case", Func: caseNames},
		{Name: "names-with-NUL", Func: nulNames},
		{Name: "path-forms", Func: pathForms},
		{Name: "paths-that-escape", Func: escapes},
		{Name: "links-are-kept", Needs: links, Tools: ln, Func: linksKept},
		{Name: "links-inside", Needs: links, Tools: ln, Func: linksInside},
		{Name: "links-that-escape", Tools: ln, Func: linksEscape},
		{Name: "links-that-escape-by-a-directory", Tools: ln, Func: linksEscapeDirectory},
		{Name: "links-removed-and-moved", Tools: ln, Func: linksRemoved},
		{Name: "links-in-circles", Tools: ln, Func: linksLoop},
		{Name: "user", Needs: kit.Needs(driver.ProcUser, driver.FilesNative), Proves: native, Tools: []string{"id"}, Func: fileUser},
		{Name: "watch", Needs: watch, Func: watchFiles},
		{Name: "watch-recursive", Needs: watch, Func: watchRecursive},
		{Name: "watch-ends-with-caller", Needs: watch, Func: watchFilesEnds},
	}
	for i := range checks {
		if checks[i].Proves == nil && checks[i].Needs == nil {
			checks[i].Proves = native
		}
	}
	return suite.Group{Name: "files", Doc: "files are read and written whole, and never outside the workspace", Checks: checks}
}
