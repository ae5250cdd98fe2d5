// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are in every sandbox.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix"}

func underSystem(path string) bool {
	return slices.ContainsFunc(systemDirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

// besides are directories that programs of a PATH directory below the home need too.
var besides = map[string][]string{
	".cargo/bin":              {".rustup"},
	".pyenv/shims":            {".pyenv"},
	".pyenv/bin":              {".pyenv"},
	".rbenv/shims":            {".rbenv"},
	".asdf/shims":             {".asdf"},
	".volta/bin":              {".volta"},
	".sdkman/bin":             {".sdkman/candidates"},
	".local/bin":              {".local/pipx/venvs", ".local/share/pipx/venvs", ".local/share/uv/tools", ".local/share/uv/python"},
	".local/share/mise/shims": {".local/share/mise"},
}

// Toolchains gives what lies outside the system directories and has to be readable for the programs in the given PATH
// directories to run: the directories, what their links lead to, and the installation that a bin directory belongs to.
// Neither the home nor what it holds besides programs is ever among them.
func Toolchains(path []string, home string) []string {
	var list []string
	add := func(p string) {
		p = filepath.Clean(p)
		if st, err := os.Stat(p); err != nil || !st.IsDir() || underSystem(p) || tooWide(p, home) {
			return
		}
		list = append(list, p)
	}
	for _, dir := range path {
		if !filepath.IsAbs(dir) {
			continue
		}
		add(dir)
		if prefix := installation(dir, home); prefix != "" {
			add(prefix)
		}
		if rel, err := filepath.Rel(home, dir); err == nil && home != "" {
			for _, b := range besides[rel] {
				add(filepath.Join(home, b))
			}
		}
		if underSystem(dir) {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > maxEntries {
			continue
		}
		for _, e := range entries {
			if e.Type()&os.ModeSymlink == 0 {
				continue
			}
			target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			targetDir := filepath.Dir(target)
			add(targetDir)
			if prefix := installation(targetDir, home); prefix != "" {
				add(prefix)
			}
		}
	}
	return list
}

// maxEntries bounds the links that are followed in one directory.
const maxEntries = 4096

// installation is the directory above a bin directory, when it looks like one into which programs were installed.
func installation(dir, home string) string {
	if base := filepath.Base(dir); base != "bin" && base != "sbin" {
		return ""
	}
	prefix := filepath.Dir(dir)
	if filepath.Dir(prefix) == home && strings.HasPrefix(filepath.Base(prefix), ".") {
		return "" // ~/.local and the like hold much besides programs
	}
	for _, sign := range []string{"lib", "libexec", "pkg", "share", "include", "pyvenv.cfg"} {
		if _, err := os.Stat(filepath.Join(prefix, sign)); err == nil {
			return prefix
		}
	}
	return ""
}

// tooWide refuses directories that hold more than programs.
func tooWide(p, home string) bool {
	if p == "/" || p == home || filepath.Dir(p) == "/" {
		return true
	}
	return home != "" && strings.HasPrefix(home+"/", p+"/")
}

// HostPath gives the absolute directories of a PATH.
func HostPath(path string) []string {
	var list []string
	for _, d := range filepath.SplitList(path) {
		if filepath.IsAbs(d) {
			list = append(list, filepath.Clean(d))
		}
	}
	return list
}
