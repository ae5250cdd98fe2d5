// SPDX-License-Identifier: Apache-2.0

// Package repotest holds the rules of the repository as tests: headers, package comments, sizes, imports.
package repotest
