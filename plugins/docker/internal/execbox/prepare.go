// SPDX-License-Identifier: Apache-2.0

package execbox

import (
	"context"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Prepare makes accounts and gives the workspace its owner (USER:GROUP, or USER: for its own group), with the image's own
// tools. why is why there is no guest to do it.
func (b *Box) Prepare(ctx context.Context, owner string, accounts driver.Accounts, why string) error {
	var said strings.Builder
	exit, err := b.Run(ctx, &driver.Command{
		Argv: append([]string{"sh", "-c", prepare, "sh", b.Root, owner}, names(accounts)...), User: "0", Dir: "/",
	}, driver.Streams{Stdout: &said, Stderr: &said})
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return errs.New(errs.CreateFailed, "the workspace cannot be prepared with the image's own tools: %s", strings.TrimSpace(said.String())).
			WithHint("without berth's guest (%s) an image needs sh, chown and, for users, useradd or adduser", why)
	}
	return nil
}

// prepare makes users and gives the workspace its owner.
const prepare = `root=$1 owner=$2; shift 2
for a in "$@"; do
  name=${a%%=*} members=${a#*=}
  case $a in
    *=*) grep -q "^$name:" /etc/group || groupadd "$name" 2>/dev/null || addgroup "$name" || exit 1
      for m in $members; do usermod -aG "$name" "$m" 2>/dev/null || addgroup "$m" "$name" || exit 1; done ;;
    *) grep -q "^$name:" /etc/passwd || useradd -m "$name" 2>/dev/null || adduser -D "$name" || exit 1 ;;
  esac
done
# Of a number not every chown takes that it means its own group.
u=${owner%:}
case $owner in
  *[!0-9:]*) ;;
  *:) g=$(id -g "$u" 2>/dev/null) || g=$u; owner=$u:$g ;;
esac
[ "$root" = / ] || chown "$owner" "$root"`

// names gives users as NAME, then groups as NAME=MEMBERS.
func names(a driver.Accounts) []string {
	var out []string
	for _, g := range a.Groups {
		out = append(out, g.Users...)
	}
	out = append(out, a.Users...)
	for _, g := range a.Groups {
		out = append(out, g.Name+"="+strings.Join(g.Users, " "))
	}
	return out
}
