// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/fake"
	"github.com/berth-dev/berth/sdk/serve"
)

// TestMain makes this program a driver where it is called like one.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "berth-driver-sound":
		serve.Main(func(hclog.Logger) driver.Driver { return fake.New(fake.Options{}) })
	case "berth-driver-wordy":
		serve.Main(func(hclog.Logger) driver.Driver { return wordy{fake.New(fake.Options{})} })
	}
	os.Exit(m.Run())
}

// wordy is a driver that tells in words only what is wrong.
type wordy struct{ *fake.Driver }

func (wordy) List(context.Context, map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		yield(driver.Info{}, errors.New("the vendor was not in the mood"))
	}
}

// A vendor reads the reports: what a run proves, what it leaves open and why, in all three of them.
func TestConformanceReports(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type junit struct {
		Tests      int `xml:"tests,attr"`
		Failures   int `xml:"failures,attr"`
		Skipped    int `xml:"skipped,attr"`
		Properties []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:"value,attr"`
		} `xml:"properties>property"`
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	for _, c := range []struct {
		name, driver string
		args         []string
		exit         int
		verdict      conformance.Verdict
		says         []string
		not          []string
		feature      driver.Feature
		stands       string // and why
	}{
		{
			name: "a part", driver: "sound", args: []string{"--only", "lifecycle/list-nothing"}, verdict: conformance.Partial,
			says: []string{"fake 0.1.0 passed what was run, which is only a part of the suite and no verdict: 1 checks passed", "not asked for: --only names others", "not asked for: it needs --faults"},
			not:  []string{"conforms"}, feature: driver.LifeList, stands: "partly_proven: not asked for: --only names others",
		},
		{
			name: "nothing of it", driver: "sound", args: []string{"--only", "lifecycle/list-nothing"}, verdict: conformance.Partial,
			feature: driver.ProcPTY, stands: "not_tested: not asked for: --only names others",
		},
		{
			name: "claimed and skipped", driver: "sound", args: []string{"--only", "lifecycle/list-nothing", "--skip", "lifecycle/list-nothing=too slow"}, exit: 1,
			verdict: conformance.DoesNotConform, says: []string{"skipped: lifecycle/list-nothing: too slow", "does not conform: "},
			feature: driver.LifeList, stands: "unproven: lifecycle/list-nothing was skipped: too slow",
		},
		{
			name: "an error without a code", driver: "wordy", args: []string{"--only", "lifecycle/list-nothing"}, exit: 1,
			verdict: conformance.DoesNotConform, says: []string{"does not conform: 0 checks passed, 1 failed"},
			feature: driver.LifeList, stands: "broken: lifecycle/list-nothing failed",
		},
		{
			name: "no budget", driver: "sound", args: []string{"--only", "lifecycle/list-nothing,lifecycle/create-many", "--max-creates", "2"}, verdict: conformance.Partial,
			says: []string{"left out: 1 checks, the budget of 2 creates is spent"}, not: []string{"conforms"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Symlink(self, filepath.Join(dir, "berth-driver-"+c.driver)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), testbin.Berth(t), append([]string{"driver", "conformance", "./berth-driver-" + c.driver, "--json", "r.json", "--junit", "r.xml"}, c.args...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if code := cmd.ProcessState.ExitCode(); code != c.exit || (err != nil && !errors.As(err, &exit)) {
				t.Fatalf("exit code %d, %v\n%s", code, err, out)
			}
			for _, want := range c.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, no := range c.not {
				if strings.Contains(string(out), no) {
					t.Errorf("%q in\n%s", no, out)
				}
			}
			var r conformance.Report
			read(t, filepath.Join(dir, "r.json"), json.Unmarshal, &r)
			if r.Verdict != c.verdict || r.Passed+r.Failed+r.Skipped+r.NotRun != len(r.Results) {
				t.Errorf("%s, %d passed, %d failed, %d skipped, %d not run, %d results", r.Verdict, r.Passed, r.Failed, r.Skipped, r.NotRun, len(r.Results))
			}
			for _, x := range r.Results {
				if x.Status == conformance.Skipped && (x.Why == "" || x.Reason == "") {
					t.Errorf("%s/%s was skipped, and nobody says why: %+v", x.Group, x.Check, x)
				}
			}
			stands := ""
			for _, f := range r.Features {
				if f.Feature == c.feature {
					stands = string(f.Standing) + ": " + f.Reason
				}
			}
			if stands != c.stands {
				t.Errorf("%s is %q, want %q", c.feature, stands, c.stands)
			}
			var j junit
			read(t, filepath.Join(dir, "r.xml"), xml.Unmarshal, &j)
			properties := map[string]string{}
			for _, p := range j.Properties {
				properties[p.Name] = p.Value
			}
			if properties["verdict"] != string(c.verdict) || (c.feature != "" && properties[string(c.feature)] != c.stands) {
				t.Errorf("%v", properties)
			}
			failed, skipped := 0, 0
			for _, x := range j.Cases {
				if x.Failure != nil {
					failed++
				}
				if x.Skipped != nil {
					skipped++
				}
			}
			if j.Failures != failed || j.Skipped != skipped || j.Tests != len(j.Cases) || (failed > 0) != (c.verdict == conformance.DoesNotConform) {
				t.Errorf("%d tests, %d failures, %d skipped; there are %d cases, %d failed, %d skipped", j.Tests, j.Failures, j.Skipped, len(j.Cases), failed, skipped)
			}
		})
	}
}

func read(t *testing.T, path string, decode func([]byte, any) error, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = decode(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
