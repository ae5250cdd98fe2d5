// SPDX-License-Identifier: Apache-2.0

// Package beneath finds files below opened directories, whatever links and racing renames say.
//
// A [Set] holds one opened directory for the workspace and one for each granted path. [Set.Resolve] turns a path into
// a [Loc]: an opened parent directory and a name in it. What is then done to the file goes through that descriptor and
// never follows a link in the name, so that nothing can leave the roots between the check and the use. No decision
// about containment looks at a string: on Linux the kernel walks (openat2 with RESOLVE_BENEATH); where that is refused,
// where the kernel stops at an absolute link, and where a path is longer than the kernel takes, a walk of its own opens
// one component after the other and never follows a link or opens "..".
//
// # Links
//
// A relative link is followed while it stays below its root. An absolute link is followed when its target, as the
// sandbox sees it, is below a root: the walk then starts again at that root's descriptor. Everything else is
// errs.PathEscapes. More than 40 links are an error.
//
// The package also holds the few descriptor-relative operations that differ between systems: [StatAt], [ChmodAt],
// [SetTimes], [RenameNew], [ReadDir], [OpenDir] and the walk of a tree, [Walk], which needs a bounded number of
// descriptors at any depth.
package beneath
