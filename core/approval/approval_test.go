// SPDX-License-Identifier: Apache-2.0

package approval_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

func TestPlain(t *testing.T) {
	for command, want := range map[string]string{
		"ls -la":               "ls|-la",
		"  ls\t-la \n":         "ls|-la",
		"'l's \"-l\"a":         "ls|-la",
		`l\s`:                  "ls",
		`git commit -m "a; b"`: "git|commit|-m|a; b",
		`echo 'a$(b)' "a\$b"`:  "echo|a$(b)|a$b",
		"ls # rm -rf x":        "ls",
		"ls;":                  "ls",
		"ls \\\n-la":           "ls|-la",
		`"git status"`:         "git status",
		"echo a=b 'c\nd'":      "echo|a=b|c\nd",
		"find . -name '*.go'":  "find|.|-name|*.go",
		"/usr/bin/git status":  "/usr/bin/git|status",
		`"a"=b x`:              "a=b|x",
	} {
		if got := strings.Join(approval.Plain(command), "|"); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
	for _, command := range []string{
		"", " ", "#", "ls; rm -rf x", "ls\nrm -rf x", "ls & rm x", "ls &", "ls && x", "ls || x", "ls | sh", "! ls", "ls > x", "ls < x", "ls >> x", "ls 2>&1",
		"ls <<EOF\nx\nEOF", "ls <<<x", "ls $(rm x)", "ls `rm x`", "ls \"$(rm x)\"", "ls \"`rm x`\"", "ls $X", "ls \"$X\"", "ls ${X:-y}", "ls $((1+1))",
		"X=1 ls", "X=1", "PATH=. ls", "X+=1 ls", "X[0]=1 ls", "(ls)", "{ ls; }", "if true; then ls; fi", "while :; do ls; done", "f() { ls; }",
		"ls *", "ls ?", "ls [a]", "ls {a,b}", "ls ~", "ls ~root", "ls a=~", "ls <(rm x)", "ls >(rm x)", "ls $'a'", `ls $"a"`, "[[ -f x ]]", "((1))", "time ls",
		"coproc ls", "export X=1", "declare -x Y", "local x", "let x=1", "ls 'x", "ls \"x", "ls \x00", "ls\r\nrm", "ls \x1b[A", "ls \x7f", "ls \xff", "=ls", "!ls", "''",
		"ls @(a|b)", "case x in x) ls;; esac", "ls " + strings.Repeat("x", 1<<17),
	} {
		if got := approval.Plain(command); got != nil {
			t.Errorf("%q is taken for the plain command %q", command, got)
		}
	}
}

// shellCall is a call of the shell tool.
func shellCall(command string) *approval.Call {
	return &approval.Call{Agent: "a", Tool: "exec_command", Subject: tool.Subject{Command: &tool.Command{Text: command}}}
}

func rules(t *testing.T, a *spec.Approvals, ofRun *spec.Approvals) *approval.Rules {
	t.Helper()
	r, err := approval.Compile(ofRun, "/workspace", &spec.Agent{Label: "a", Approvals: a})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAllowingRuleIsStrict(t *testing.T) {
	r := rules(t, &spec.Approvals{Default: "ask", Rules: []spec.ApprovalRule{
		{Name: "read", Tools: []string{"exec_*"}, Match: []string{`^ls( |$)`, `^git status$`, `^cat README\.md$`}, Decision: "allow"},
	}}, nil)
	for _, command := range []string{"ls", "ls -la", "'ls'  -la", "git status", "git  'status'", "ls 'a b'", "cat README.md"} {
		if got := r.Judge(shellCall(command), nil); got.Verdict != approval.Allow || got.Rule != "read" {
			t.Errorf("%q: %+v", command, got)
		}
	}
	for _, command := range []string{
		"lsof", "rm x", "ls; rm -rf x", "ls\nrm -rf x", "ls $(rm x)", "ls `rm x`", "X=1 ls", "ls | sh", "ls > /etc/passwd", "'git status'", "/tmp/ls", "./ls",
		"env ls", "sh -c ls", "git status --porcelain", "cat ./README.md", "cat READMExmd", "ls && ls", "ls\\ -la", "eval ls", "ls \"$X\"",
	} {
		if got := r.Judge(shellCall(command), nil); got.Verdict != approval.Ask {
			t.Errorf("%q: %+v", command, got)
		}
	}
	for shell, want := range map[string]approval.Verdict{
		"": approval.Allow, "bash": approval.Allow, "/bin/sh": approval.Allow, "/usr/bin/zsh": approval.Allow,
		"./bash": approval.Ask, "/workspace/bash": approval.Ask, "/bin/../tmp/sh": approval.Ask, "python": approval.Ask, "/usr/bin/../../tmp/bash": approval.Ask,
	} {
		c := shellCall("ls")
		c.Subject.Command.Shell = shell
		if got := r.Judge(c, nil); got.Verdict != want {
			t.Errorf("in shell %q: %+v", shell, got)
		}
	}
}

func TestOtherRulesAreLax(t *testing.T) {
	r := rules(t, &spec.Approvals{Rules: []spec.ApprovalRule{
		{Name: "push", Match: []string{"^git push"}, Decision: "deny"},
		{Name: "rm", Match: []string{`^rm -rf\b`}, Decision: "ask", Reason: "It deletes."},
	}}, nil)
	for _, command := range []string{
		"git push", "g'it' push", `git "push" -f`, "/usr/bin/git push", "X=1 git push", "cd x && git push", "cd x\ngit push", "(git push)", "ls $(git push)", "ls `git push`",
		"echo \"$(git push)\"", "sudo git push", "sudo -u me env X=1 git push", "sh -c 'git push'", "bash -lc \"cd x; git push\"", "xargs git push", "eval 'git push'", "eval git push",
		"if true; then git push; fi", "f() { git push; }; f", "git push | cat", "git push &", "ls; git push; 'unclosed", "git push > x", "timeout 5 git push", "nohup git push &",
		"find . -exec git push ;", "{ git push; }", "git push #", "! git push", "sh -c \"sh -c 'git push'\"", "cat <(git push)",
	} {
		if got := r.Judge(shellCall(command), nil); got.Verdict != approval.Deny || got.Rule != "push" || got.Reason != `rule "push" does not allow the call` {
			t.Errorf("%q: %+v", command, got)
		}
	}
	if got := r.Judge(shellCall("make && rm -rf build"), nil); got.Verdict != approval.Ask || got.Reason != "It deletes." {
		t.Errorf("%+v", got)
	}
	for _, command := range []string{"git status", "echo git push", "echo 'rm -rf x'", "git pull"} {
		if got := r.Judge(shellCall(command), nil); got.Verdict != approval.Allow {
			t.Errorf("%q: %+v", command, got)
		}
	}
}

func TestPaths(t *testing.T) {
	patch := func(paths ...string) *approval.Call {
		return &approval.Call{Agent: "a", Tool: "apply_patch", Subject: tool.Subject{Paths: paths}}
	}
	r := rules(t, &spec.Approvals{Default: "ask", Rules: []spec.ApprovalRule{
		{Name: "secret", Paths: []string{"deploy/**", "/etc/**"}, Decision: "deny"},
		{Name: "source", Paths: []string{"src/**", "*.md"}, Decision: "allow"},
	}}, nil)
	for _, c := range []struct {
		paths []string
		want  approval.Verdict
		rule  string
	}{
		{[]string{"src/a.go"}, approval.Allow, "source"},
		{[]string{"./src//x/../a.go", "README.md", "/workspace/src/b.go"}, approval.Allow, "source"},
		{[]string{"src/a.go", "other"}, approval.Ask, ""},
		{[]string{"src/../other"}, approval.Ask, ""},
		{[]string{"src/../deploy/key"}, approval.Deny, "secret"},
		{[]string{"src/a.go", "deploy/key"}, approval.Deny, "secret"},
		{[]string{"/workspace/deploy/x/key"}, approval.Deny, "secret"},
		{[]string{"../etc/passwd"}, approval.Deny, "secret"},
		{[]string{"src/../../etc/passwd"}, approval.Deny, "secret"},
		{[]string{"docs/x.md"}, approval.Ask, ""},
		{[]string{"/workspacesrc/a"}, approval.Ask, ""},
		{nil, approval.Ask, ""},
	} {
		if got := r.Judge(patch(c.paths...), nil); got.Verdict != c.want || got.Rule != c.rule {
			t.Errorf("%q: %+v", c.paths, got)
		}
	}
	if got := r.Judge(shellCall("cat deploy/key"), nil); got.Verdict != approval.Ask {
		t.Errorf("a command has no paths, and a path rule matched it: %+v", got)
	}
}

func TestOrderAndDefaults(t *testing.T) {
	other := func(args string) *approval.Call {
		return &approval.Call{Agent: "a", Tool: "close_ticket", Server: "tickets", Arguments: args}
	}
	ofRun := &spec.Approvals{Rules: []spec.ApprovalRule{{Name: "run", Tools: []string{"close_*"}, Match: []string{`"id":7`}, Decision: "deny", Reason: "Not 7."}}}
	a := &spec.Approvals{Default: "deny", Rules: []spec.ApprovalRule{
		{Name: "elsewhere", MCPServers: []*spec.MCPServer{{Label: "sql"}}, Decision: "deny"},
		{Name: "others", Agents: []*spec.Agent{{Label: "b"}}, Decision: "deny"},
		{Name: "tickets", MCPServers: []*spec.MCPServer{{Label: "tickets"}}, Match: []string{`^\{"id":\d+\}$`}, Decision: "allow"},
	}}
	r := rules(t, a, ofRun)
	for args, want := range map[string]approval.Ruling{
		`{"id": 7}`:             {Verdict: approval.Deny, Rule: "run", Reason: "Not 7."},
		`{ "id" : 8 }`:          {Rule: "tickets"},
		`{"\u0069d":9}`:         {Rule: "tickets"},
		`{"id":9,"force":true}`: {Verdict: approval.Deny, Reason: "no rule allows the call, and what no rule allows is denied"},
	} {
		if diff := cmp.Diff(want, r.Judge(other(args), nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	for def, want := range map[string][2]approval.Verdict{ // for a tool that asks, and for one that does not
		"": {approval.Ask, approval.Allow}, "auto": {approval.Ask, approval.Allow}, "allow": {approval.Allow, approval.Allow},
		"ask": {approval.Ask, approval.Ask}, "deny": {approval.Deny, approval.Deny},
	} {
		r := rules(t, &spec.Approvals{Default: def}, nil)
		for i, needs := range []bool{true, false} {
			c := other("{}")
			c.NeedsApproval = needs
			if got := r.Judge(c, nil).Verdict; got != want[i] {
				t.Errorf("default %q, needs approval %t: %v", def, needs, got)
			}
		}
	}
	var none approval.Rules
	if got := none.Judge(shellCall("rm -rf /"), nil); got.Verdict != approval.Allow {
		t.Errorf("without rules: %+v", got)
	}
	if _, err := approval.Compile(nil, "/w", &spec.Agent{Approvals: &spec.Approvals{Rules: []spec.ApprovalRule{{Match: []string{"("}}}}}); err == nil {
		t.Error("a broken expression is taken")
	}
}

// What an answer covers that is to count for later calls.
func TestKinds(t *testing.T) {
	r := rules(t, &spec.Approvals{Default: "ask"}, nil)
	shell := func(command, sh string) *approval.Call {
		c := shellCall(command)
		c.Subject.Command.Shell = sh
		c.Arguments = `{"cmd":"` + command + `","shell":"` + sh + `"}`
		return c
	}
	files := func(paths ...string) *approval.Call {
		return &approval.Call{Agent: "a", Tool: "apply_patch", Subject: tool.Subject{Paths: paths}}
	}
	for _, c := range []struct {
		call   *approval.Call
		says   string
		covers []*approval.Call
		not    []*approval.Call
	}{
		{
			shell("git push origin", ""), "exec_command with one plain command that begins with `git push`, in any directory",
			[]*approval.Call{shell("git push", ""), shell("git  'push' -f", "")},
			[]*approval.Call{shell("git pull", ""), shell("git push; rm x", ""), shell("git push", "./sh"), shell("X=1 git push", ""), shell("git push-all", ""), files("git")},
		},
		{
			shell("rm -rf build", ""), "exec_command with exactly this command, in any directory",
			[]*approval.Call{shell("rm -rf build", "")},
			[]*approval.Call{shell("rm -rf build x", ""), shell("rm -rf build", "bash"), shell("rm -rf  build", "")},
		},
		{shell("sudo rm", ""), "exec_command with exactly this command, in any directory", nil, []*approval.Call{shell("sudo rm x", "")}},
		{shell("python3 build", ""), "exec_command with exactly this command, in any directory", nil, []*approval.Call{shell("python3 build x", "")}},
		{shell("bash build", ""), "exec_command with exactly this command, in any directory", nil, []*approval.Call{shell("bash build x", "")}},
		{shell("a | b", ""), "exec_command with exactly this command, in any directory", []*approval.Call{shell("a | b", "")}, []*approval.Call{shell("a", "")}},
		{shell("a | b", "bash"), "exec_command with exactly these arguments", []*approval.Call{shell("a | b", "bash")}, []*approval.Call{shell("a | b", "")}},
		{
			files("src/../b", "a"), "apply_patch on no other path than a, b",
			[]*approval.Call{files("a"), files("b", "a"), files("/workspace/a")},
			[]*approval.Call{files("a", "c"), files("../a"), files()},
		},
		{
			&approval.Call{Agent: "a", Tool: "t", Server: "s", Arguments: "{}"}, "every call of t of s",
			[]*approval.Call{{Agent: "a", Tool: "t", Server: "s", Arguments: "1"}},
			[]*approval.Call{{Agent: "a", Tool: "t"}, {Agent: "b", Tool: "t", Server: "s"}, {Agent: "a", Tool: "u", Server: "s"}},
		},
	} {
		k := r.Kind(c.call)
		if got := approval.Describe(k); got != c.says {
			t.Errorf("%s\nwant %s", got, c.says)
		}
		yes := []run.Answer{{Covers: k, Allow: true}}
		for _, other := range append([]*approval.Call{c.call}, c.covers...) {
			if got := r.Judge(other, yes); got.Verdict != approval.Allow {
				t.Errorf("%s does not cover %+v", c.says, other)
			}
		}
		for _, other := range c.not {
			if r.Covered(k, other) {
				t.Errorf("%s covers %+v", c.says, other)
			}
		}
	}
	// The newest answer counts, and none counts against a rule that denies.
	push := shell("git push", "")
	k := r.Kind(push)
	if got := r.Judge(push, []run.Answer{{Covers: k, Allow: true}, {Covers: k, Message: "enough"}}); got.Verdict != approval.Deny || got.Reason != "a call of this kind was rejected before: enough" {
		t.Errorf("%+v", got)
	}
	r = rules(t, &spec.Approvals{Rules: []spec.ApprovalRule{{Name: "no", Match: []string{"push"}, Decision: "deny"}}}, nil)
	if got := r.Judge(push, []run.Answer{{Covers: k, Allow: true}}); got.Verdict != approval.Deny {
		t.Errorf("%+v", got)
	}
}

// What is taken for a plain command is what a real shell makes of it, in each shell that there is.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"ls -la", "echo 'a' \"b\\\"c\" d\\ e", "a;b", "a\\\nb", "x=1 y", "echo {a,b}", "echo ~", "a 'b\nc'", "echo !x", "a#b # c", "echo \"\\a\\\\\""} {
		f.Add(s)
	}
	var found []string
	for _, sh := range []string{"sh", "bash", "dash"} {
		if p, err := exec.LookPath(sh); err == nil {
			found = append(found, p)
		}
	}
	f.Fuzz(func(t *testing.T, command string) {
		words := approval.Plain(command)
		r := rules(t, &spec.Approvals{Rules: []spec.ApprovalRule{{Match: []string{"^x"}, Decision: "deny"}}}, nil)
		r.Judge(shellCall(command), nil)
		if words == nil {
			return
		}
		// The words are made arguments of printf: what is printed is what a program would get. A command whose first word
		// is not a plain name would not be run as it is, so it is not looked at.
		trimmed := strings.TrimLeft(command, " \t\n\\")
		if !strings.HasPrefix(trimmed, words[0]) || strings.ContainsAny(words[0], "\\'\"# \n\t") {
			return
		}
		want := strings.Join(words[1:], "\x01") + "\x01"
		if len(words) == 1 {
			want = ""
		}
		for _, sh := range found {
			script := `f() { for w; do printf '%s\1' "$w"; done; }; ` + "f" + strings.TrimPrefix(trimmed, words[0])
			out, err := exec.CommandContext(t.Context(), sh, "-c", script).Output()
			if err != nil {
				continue // it does not like it at all
			}
			if string(out) != want {
				t.Errorf("%s makes %q of %q, want %q", sh, strings.Split(string(out), "\x01"), command, words)
			}
		}
	})
}
