// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"io"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func arguments(c *kit.C) {
	box := c.Box()
	for _, arg := range []string{
		"", " ", "two words", "  spaces  ", `"double"`, `'single'`, "`ls`", "$HOME", "${HOME}", "$(ls)", "*", "a\nb", "\ttab", `back\slash`,
		"-n", "--", "~", "#no comment", "a;b", "a&b", "a|b", ">x", "ä€😀", "!x", "%s", "\x01", `'"'"'`,
	} {
		// $1 is the argument of the script itself, whatever it holds.
		out := c.Exec(box, "printf", "%s|", arg)
		c.Same(fmt.Sprintf("the argument %q", arg), out.Stdout, []byte(arg+"|"))
	}
}

func argumentsRaw(c *kit.C) {
	arg := "not\xff\xfeUTF-8\x80"
	c.Same("an argument that is not UTF-8", c.Exec(c.Box(), "printf", "%s", arg).Stdout, []byte(arg))
}

func argumentLong(c *kit.C) {
	arg := strings.Repeat("long ", 20_000)
	c.Same("an argument of 100 KB", c.Exec(c.Box(), "printf", "%s", arg).Stdout, []byte(arg))
}

func commandEnv(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{
		Argv: []string{"sh", "-c", `echo "$OWN $BERTH_PLAIN"`}, Env: map[string]string{"OWN": "own", "BERTH_PLAIN": "another"},
	}, nil)
	c.Same("a command's environment over the sandbox's", out.Stdout, []byte("own another\n"))
	if got := c.Sh(c.Box(), `echo "[$OWN]"`); got != "[]\n" {
		c.Errorf("the environment of one command is in the next: %q", got)
	}
}

func commandEnvOdd(c *kit.C) {
	for _, value := range []string{"", "two words", "a=b", `"quoted"`, "'single'", "line\nline", "$HOME", "ä€😀", "\\"} {
		out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", `printf '%s|' "$ODD"`}, Env: map[string]string{"ODD": value}}, nil)
		c.Same(fmt.Sprintf("the variable's value %q", value), out.Stdout, []byte(value+"|"))
	}
}

func commandSecret(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{
		Argv: []string{"sh", "-c", `[ "$OWN" = "$` + suite.CanaryName + `" ] && echo same`}, SecretEnv: map[string]string{"OWN": c.Canary},
	}, nil)
	c.Same("a secret variable of the command, beside that of the sandbox", out.Stdout, []byte("same\n"))
}

func secretNotListed(c *kit.C) {
	box := c.Box()
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{
		Argv: []string{"cat"}, Detached: true, SecretEnv: map[string]string{"OWN": c.Canary},
	}, driver.Streams{Stdin: io.LimitReader(zeroes{}, 1)})
	ps, err := box.Processes(c.Ctx())
	c.OK(err, "list processes")
	c.NoSecret("the list of processes", fmt.Sprint(ps))
	run.Wait(c)
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func hostEnv(c *kit.C) {
	if env := c.Sh(c.Box(), "env"); strings.Contains(env, "BERTH_DRIVER_") || strings.Contains(env, "PLUGIN_UNIX_SOCKET_DIR") {
		c.Errorf("the environment of the driver process is in the sandbox")
	}
}

func directory(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, as := range []string{dir, "./" + dir, c.Options().Workspace + "/" + dir} {
		out := c.Command(box, &driver.Command{Argv: []string{"pwd"}, Dir: as}, nil)
		c.Same("the directory of a command in "+as, out.Stdout, []byte(c.Options().Workspace+"/"+dir+"\n"))
	}
	out := c.Command(box, &driver.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, nil)
	c.Same("the directory of a command outside the workspace", out.Stdout, []byte("/tmp\n"))
}

func directoryMissing(c *kit.C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"pwd"}, Dir: "no/such/directory"}, driver.Streams{})
	c.Code(err, "run in a directory that is not there", errs.FileNotFound)
}

func commandUser(c *kit.C) {
	box := c.Box()
	own := strings.TrimSpace(c.Sh(box, "id -un"))
	out := c.Command(box, &driver.Command{Argv: []string{"id", "-un"}, User: own}, nil)
	if got := strings.TrimSpace(string(out.Stdout)); got != own {
		c.Errorf("a command for user %q ran as %q", own, got)
	}
}

func userUnknown(c *kit.C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"true"}, User: "no-such-user-here"}, driver.Streams{})
	c.Code(err, "run as a user that does not exist", errs.InvalidArgument, errs.Unsupported, errs.PermissionDenied, errs.FileNotFound)
}
