// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// gitTimeout bounds one git command.
const gitTimeout = 10 * time.Minute

var fullCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// gitRepo brings a repository into the cache and gives the directory of its checkout. Objects are kept in a bare mirror
// for each address and checkouts by commit, so that a second session fetches nothing that did not change, and nothing
// at all when the ref is a full commit.
func (r *resolver) gitRepo(ctx context.Context, e *spec.GitRepoEntry) (string, error) {
	if r.opts.CacheDir == "" {
		return "", errors.New("there is no cache directory for repositories")
	}
	if _, err := exec.LookPath("git"); err != nil {
		return "", errors.New("git is not installed on this machine; it fetches the repository outside the sandbox")
	}
	address, err := gitAddress(e)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(e.Ref, "-") || strings.ContainsAny(e.Ref, " \x00:") || e.Ref == "" {
		return "", fmt.Errorf("%q is no ref: give a branch, a tag or a commit", e.Ref)
	}
	env, err := gitCredentials(ctx, e, address)
	if err != nil {
		return "", err
	}
	g := &git{env: env, cache: filepath.Join(r.opts.CacheDir, "git"), address: address, spec: e, progress: r.opts.Progress}
	if err := os.MkdirAll(g.cache, 0o700); err != nil {
		return "", err
	}
	return g.checkout(ctx)
}

// gitAddress is where the repository is. Only transports that run no program named by the address are taken.
func gitAddress(e *spec.GitRepoEntry) (string, error) {
	repo := e.Repo
	if !strings.Contains(repo, "://") && !strings.HasPrefix(repo, "git@") {
		host := e.Host
		if host == "" {
			host = "github.com"
		}
		if !strings.Contains(host, "://") {
			host = "https://" + host
		}
		repo = strings.TrimSuffix(host, "/") + "/" + strings.Trim(repo, "/")
		if !strings.HasPrefix(repo, "file://") && !strings.HasSuffix(repo, ".git") {
			repo += ".git"
		}
	}
	if strings.HasPrefix(repo, "git@") {
		return repo, nil
	}
	u, err := url.Parse(repo)
	if err != nil {
		return "", fmt.Errorf("%q is no address of a repository", e.Repo)
	}
	switch u.Scheme {
	case "https", "http", "ssh", "git", "file":
	default:
		return "", fmt.Errorf("%q: repositories are fetched over https, http, ssh, git or file", e.Repo)
	}
	if _, ok := u.User.Password(); ok {
		return "", errors.New("the address holds a password: give it in a credentials block, so that it is kept out of the sandbox")
	}
	return repo, nil
}

// gitCredentials gives the environment that authenticates git. It is neither an argument, which every user can see, nor
// kept in the repository.
func gitCredentials(ctx context.Context, e *spec.GitRepoEntry, address string) ([]string, error) {
	if e.Token.IsZero() {
		return nil, nil
	}
	token, err := e.Token.Reveal(ctx)
	if err != nil || token == "" {
		return nil, err
	}
	user, err := e.Username.Reveal(ctx)
	if err != nil {
		return nil, err
	}
	if user == "" {
		user = "x-access-token"
	}
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(u.Scheme, "http") {
		return nil, errors.New("a token is only used over http and https; for ssh use keys of the host")
	}
	header := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token))
	return []string{
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=http." + u.Scheme + "://" + u.Host + "/.extraHeader",
		"GIT_CONFIG_VALUE_0=" + header,
	}, nil
}

type git struct {
	env      []string
	cache    string
	address  string
	spec     *spec.GitRepoEntry
	progress func(driver.Progress)
}

func key(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:12])
}

func (g *git) checkout(ctx context.Context) (string, error) {
	mirror := filepath.Join(g.cache, key(g.address)+".git")
	unlock, err := lockFile(ctx, mirror+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	commit, err := g.fetch(ctx, mirror)
	if err != nil {
		return "", err
	}
	s := g.spec
	keepGit := s.KeepGit && s.Subpath == ""
	id := key(g.address, commit, s.Ref, strconv.Itoa(s.Depth), fmt.Sprint(s.Submodules, s.LFS, keepGit))
	tree := filepath.Join(g.cache, id)
	if _, err := os.Stat(tree); errors.Is(err, os.ErrNotExist) {
		if err := g.build(ctx, mirror, commit, tree, keepGit); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	if s.Subpath == "" {
		return tree, nil
	}
	sub := path.Clean("/" + s.Subpath)[1:]
	root, err := os.OpenRoot(tree)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if fi, err := root.Lstat(sub); err != nil || !fi.IsDir() {
		return "", fmt.Errorf("there is no directory %q in the repository at %s", s.Subpath, s.Ref)
	}
	return filepath.Join(tree, filepath.FromSlash(sub)), nil
}

// fetch brings the ref into the mirror and says which commit it is.
func (g *git) fetch(ctx context.Context, mirror string) (string, error) {
	if _, err := os.Stat(filepath.Join(mirror, "HEAD")); err != nil {
		if _, err := g.run(ctx, "", "init", "--quiet", "--bare", mirror); err != nil {
			return "", err
		}
		// The checkout fetches the very commit from here.
		if _, err := g.run(ctx, mirror, "config", "uploadpack.allowAnySHA1InWant", "true"); err != nil {
			return "", err
		}
	}
	ref := g.spec.Ref
	if fullCommit.MatchString(ref) {
		if _, err := g.run(ctx, mirror, "cat-file", "-e", ref+"^{commit}"); err == nil {
			return ref, nil
		}
	}
	g.progress(driver.Progress{Phase: "fetching", Message: g.address + " " + ref})
	args := []string{"fetch", "--quiet", "--no-tags", "--force"}
	if g.spec.Depth > 0 {
		args = append(args, "--depth", strconv.Itoa(g.spec.Depth))
	} else if _, err := os.Stat(filepath.Join(mirror, "shallow")); err == nil {
		args = append(args, "--unshallow")
	}
	if _, err := g.run(ctx, mirror, append(args, "--", g.address, ref)...); err != nil {
		return "", fmt.Errorf("fetch %s at %s: %w", g.address, ref, err)
	}
	out, err := g.run(ctx, mirror, "rev-parse", "--verify", "FETCH_HEAD^{commit}")
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(out)
	if fullCommit.MatchString(ref) && commit != ref {
		return "", fmt.Errorf("the server gave commit %s for %s", commit, ref)
	}
	// Keep the objects from being collected.
	_, err = g.run(ctx, mirror, "update-ref", "refs/berth/"+commit, commit)
	return commit, err
}

// build makes a checkout and puts it in its place when it is complete.
func (g *git) build(ctx context.Context, mirror, commit, tree string, keepGit bool) error {
	tmp, err := os.MkdirTemp(g.cache, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	s := g.spec
	depth := []string{"--no-tags"}
	if s.Depth > 0 {
		depth = append(depth, "--depth", strconv.Itoa(s.Depth))
	}
	branch := s.Ref
	if fullCommit.MatchString(s.Ref) {
		branch = "main"
	}
	steps := [][]string{
		{"init", "--quiet", "--initial-branch", path.Base(branch)},
		{"remote", "add", "origin", g.address},
		append(append([]string{"fetch", "--quiet"}, depth...), "file://"+mirror, commit),
		{"checkout", "--quiet", "--force", "-B", strings.TrimPrefix(branch, "refs/heads/"), commit},
	}
	if fullCommit.MatchString(s.Ref) || strings.HasPrefix(s.Ref, "refs/tags/") {
		steps[3] = []string{"checkout", "--quiet", "--force", "--detach", commit}
	}
	if s.Submodules {
		steps = append(steps, append([]string{"submodule", "update", "--quiet", "--init", "--recursive"}, depth[1:]...))
	}
	if s.LFS {
		steps = append(steps, []string{"lfs", "pull"})
	}
	for _, args := range steps {
		if _, err := g.run(ctx, tmp, args...); err != nil {
			if args[0] == "lfs" {
				return fmt.Errorf("lfs = true needs git-lfs on this machine: %w", err)
			}
			return fmt.Errorf("git %s: %w", args[0], err)
		}
	}
	for _, rest := range []string{".git/FETCH_HEAD", ".git/hooks"} {
		if err := os.RemoveAll(filepath.Join(tmp, rest)); err != nil {
			return err
		}
	}
	if !keepGit {
		if err := os.RemoveAll(filepath.Join(tmp, ".git")); err != nil {
			return err
		}
	}
	return os.Rename(tmp, tree)
}

// run runs git on the host, without asking anybody anything.
func (g *git) run(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gitTimeout, fmt.Errorf("git took longer than %s", gitTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(gitEnv(), g.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return "", errors.New(text)
		}
		return "", err
	}
	return stdout.String(), nil
}

// gitEnv is the host's environment without what would point git elsewhere.
func gitEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_PREFIX":
			continue
		}
		env = append(env, kv)
	}
	// LFS files stay pointers unless they are pulled.
	return append(env, "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "GIT_LFS_SKIP_SMUDGE=1", "GIT_OPTIONAL_LOCKS=0")
}
