// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sdk/errs"
)

// TestFailureNamesTheCure gives refusals as other machines were seen to make them.
func TestFailureNamesTheCure(t *testing.T) {
	for _, c := range []struct{ step, errno, cure string }{
		{"clone", "EPERM", "kernel.unprivileged_userns_clone"},
		{"clone", "ENOSPC", "user.max_user_namespaces"},
		{"make mounts slave", "EACCES", "kernel.apparmor_restrict_unprivileged_userns"},
		{"write uid_map", "EACCES", "AppArmor"},
		{"mount proc", "EPERM", "systempaths=unconfined"},
		{"bind /usr", "ENOSYS", "Linux 5.12"},
	} {
		e := errs.New(errs.StartFailed, "refused").With("step", c.step).With("errno", c.errno)
		f := failure(Setup{Name: "namespaces"}, e)
		if f.Step != c.step || f.Errno != c.errno || !strings.Contains(f.Cure, c.cure) {
			t.Errorf("%+v does not name %q", f, c.cure)
		}
		if got := f.Err(); got.Code != errs.IsolationMissing || got.Hint == "" || got.Context["errno"] != c.errno {
			t.Errorf("%#v", got)
		}
	}
}
