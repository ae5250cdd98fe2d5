// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// Status is how a check ended.
type Status string

// The ends.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Why is the kind of reason of a skip.
type Why string

// The kinds.
const (
	SkippedByUser Why = "skipped_by_user"
	NotAsked      Why = "not_asked"
	NotClaimed    Why = "not_claimed"
	NotHere       Why = "not_possible_here"
	// OutOfBudget is a check that was not run, or not to its end: it says nothing of the driver.
	OutOfBudget Why = "out_of_budget"
	// NothingToTest is a check of what a driver does that lacks a feature, and this one has it.
	NothingToTest Why = "nothing_to_test"
)

// Result is what became of a check.
type Result struct {
	Group    string           `json:"group"`
	Check    string           `json:"check"`
	Status   Status           `json:"status"`
	Why      Why              `json:"why,omitempty"`
	Reason   string           `json:"reason,omitempty"` // of a skip
	Proves   []driver.Feature `json:"proves,omitempty"`
	Messages []string         `json:"messages,omitempty"` // what is wrong
	Logs     []string         `json:"logs,omitempty"`
	Took     time.Duration    `json:"took_ns"`
}

// Standing is what a run said of a feature.
type Standing string

// The standings.
const (
	Proven    Standing = "proven"     // claimed, and every check of it that ran passed
	Broken    Standing = "broken"     // claimed, and a check of it failed
	Unproven  Standing = "unproven"   // claimed, and every check of it was skipped: a failure
	Emulated  Standing = "emulated"   // not claimed; the SDK does it, and its checks passed
	NoCheck   Standing = "no_check"   // claimed; this version of the suite has no check of it
	NotTested Standing = "not_tested" // claimed; its checks were not asked for
	// PartlyProven is claimed, and what ran passed; other checks of it were not asked for.
	PartlyProven Standing = "partly_proven"
)

// Verdict is what a run says of a driver.
type Verdict string

// The verdicts.
const (
	Conforms       Verdict = "conforms"
	DoesNotConform Verdict = "does_not_conform"
	// Partial is a run in which nothing failed, and that left checks out which decide: it says nothing of the driver as a whole.
	Partial Verdict = "partial"
)

// Feature is one feature in the report.
type Feature struct {
	Feature  driver.Feature `json:"feature"`
	Claimed  bool           `json:"claimed"`
	Standing Standing       `json:"standing"`
	Checks   []string       `json:"checks,omitempty"` // that passed
	Reason   string         `json:"reason,omitempty"` // why it is not proven, or not by every check
}

// Timing is how long one kind of call took.
type Timing struct {
	Call  string        `json:"call"`
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P95   time.Duration `json:"p95_ns"`
}

// Figure is a measurement of the group perf.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Report is the account of a run.
type Report struct {
	Suite    string        `json:"suite"` // version
	Driver   string        `json:"driver"`
	Version  string        `json:"version"`
	SHA256   string        `json:"sha256,omitempty"` // of the program
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took_ns"`
	Verdict  Verdict       `json:"verdict"`
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Skipped  int           `json:"skipped"`
	NotRun   int           `json:"not_run"` // for lack of budget; not among the skipped
	Features []Feature     `json:"features"`
	Results  []Result      `json:"results"`
	Timings  []Timing      `json:"timings"`
	Figures  []Figure      `json:"figures,omitempty"`
	Kept     []string      `json:"kept,omitempty"` // sandboxes that were left for a look
}

// OK says whether nothing is wrong with the driver, as far as the run went: see [Report.Verdict] for how far.
func (r *Report) OK() bool { return r.Verdict != DoesNotConform }

// LeftOut gives how many checks were not run that decide whether a driver conforms, by the reason. Those of skips that the
// caller gave reasons for are not among them: what they alone prove is unproven.
func (r *Report) LeftOut() map[string]int {
	out := map[string]int{}
	for _, x := range r.Results {
		if x.Why == OutOfBudget || x.Why == NotAsked && x.Reason != needsPerf {
			out[x.Reason]++
		}
	}
	return out
}

func (r *Report) verdict() Verdict {
	switch {
	case r.Failed > 0 || slices.ContainsFunc(r.Features, func(f Feature) bool { return f.Standing == Unproven }):
		return DoesNotConform
	case len(r.LeftOut()) > 0:
		return Partial
	}
	return Conforms
}

// Report gives the account so far.
func (s *Suite) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Report{
		Suite: Version, Driver: s.main.Desc.Name, Version: s.main.Desc.Version, SHA256: s.sum, Began: s.began, Took: time.Since(s.began),
		Results: slices.Clone(s.results), Figures: slices.Clone(s.figures), Kept: slices.Clone(s.kept),
	}
	for _, x := range r.Results {
		switch x.Status {
		case Passed:
			r.Passed++
		case Failed:
			r.Failed++
		case Skipped:
			if x.Why == OutOfBudget {
				r.NotRun++
			} else {
				r.Skipped++
			}
		}
	}
	r.Features = standings(append(slices.Clone(s.main.Desc.Features), Mounts(s.main.Desc)...), r.Results)
	r.Verdict = r.verdict()
	for _, call := range slices.Sorted(maps.Keys(s.times)) {
		t := slices.Sorted(slices.Values(s.times[call]))
		r.Timings = append(r.Timings, Timing{Call: call, Count: len(t), P50: t[len(t)/2], P95: t[len(t)*95/100]})
	}
	return r
}

func standings(claimed []driver.Feature, results []Result) []Feature {
	of := map[driver.Feature][]Result{}
	for _, r := range results {
		for _, f := range r.Proves {
			of[f] = append(of[f], r)
		}
	}
	var out []Feature
	for _, f := range claimed {
		out = append(out, standing(f, of[f]))
	}
	for _, f := range slices.Sorted(maps.Keys(of)) {
		if slices.Contains(claimed, f) {
			continue
		}
		passed := names(of[f], func(r Result) bool { return r.Status == Passed })
		if failed := names(of[f], func(r Result) bool { return r.Status == Failed }); len(passed) > 0 && len(failed) == 0 {
			out = append(out, Feature{Feature: f, Standing: Emulated, Checks: passed})
		}
	}
	return out
}

func standing(f driver.Feature, results []Result) Feature {
	out := Feature{Feature: f, Claimed: true, Checks: names(results, func(r Result) bool { return r.Status == Passed })}
	first := func(ok func(Result) bool) string {
		i := slices.IndexFunc(results, ok)
		if i < 0 {
			return ""
		}
		r := results[i]
		what := r.Reason
		if r.Status == Failed {
			what = "failed"
		} else if r.Why == SkippedByUser || r.Why == NotHere {
			what = "was skipped: " + what
		} else {
			return what // it is the same for many
		}
		return r.Group + "/" + r.Check + " " + what
	}
	because := func(why Why) string { return first(func(r Result) bool { return r.Why == why }) }
	failed := first(func(r Result) bool { return r.Status == Failed })
	user, here, unpaid, unasked := because(SkippedByUser), because(NotHere), because(OutOfBudget), because(NotAsked)
	switch {
	case len(results) == 0:
		out.Standing, out.Reason = NoCheck, "this version of the suite has no check of it"
	case failed != "":
		out.Standing, out.Reason = Broken, failed
	case user != "":
		out.Standing, out.Reason = Unproven, user
	case unpaid != "":
		out.Standing, out.Reason = NotTested, unpaid
	case len(out.Checks) > 0 && unasked != "":
		out.Standing, out.Reason = PartlyProven, unasked
	case len(out.Checks) > 0:
		out.Standing, out.Reason = Proven, here
	case here != "":
		out.Standing, out.Reason = Unproven, here
	default:
		out.Standing, out.Reason = NotTested, first(func(Result) bool { return true })
	}
	return out
}

func names(results []Result, ok func(Result) bool) []string {
	var out []string
	for _, r := range results {
		if ok(r) {
			out = append(out, r.Group+"/"+r.Check)
		}
	}
	return out
}

type xmlSuite struct {
	XMLName  xml.Name  `xml:"testsuite"`
	Name     string    `xml:"name,attr"`
	Tests    int       `xml:"tests,attr"`
	Failures int       `xml:"failures,attr"`
	Skipped  int       `xml:"skipped,attr"`
	Time     string    `xml:"time,attr"`
	Stamp    string    `xml:"timestamp,attr"`
	Facts    []xmlFact `xml:"properties>property"`
	Cases    []xmlCase `xml:"testcase"`
}

type xmlCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr"`
	Failure *xmlText `xml:"failure"`
	Skipped *xmlText `xml:"skipped"`
	Out     string   `xml:"system-out,omitempty"`
}

type xmlFact struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type xmlText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report for programs that read JUnit's format. An unproven feature is a failed case; the verdict, and
// how each feature stands, are properties.
func (r *Report) WriteJUnit(w io.Writer) error {
	out := xmlSuite{
		Name: "conformance of " + r.Driver, Skipped: r.Skipped + r.NotRun, Failures: r.Failed, Time: seconds(r.Took),
		Stamp: r.Began.UTC().Format("2006-01-02T15:04:05"),
		Facts: []xmlFact{{"verdict", string(r.Verdict)}, {"suite", r.Suite}, {"driver", r.Driver + " " + r.Version}, {"sha256", r.SHA256}},
	}
	for _, f := range r.Features {
		out.Facts = append(out.Facts, xmlFact{string(f.Feature), printable(strings.TrimSuffix(string(f.Standing)+": "+f.Reason, ": "))})
	}
	for _, x := range r.Results {
		c := xmlCase{Class: x.Group, Name: x.Check, Time: seconds(x.Took), Out: printable(strings.Join(x.Logs, "\n"))}
		switch x.Status {
		case Failed:
			first, _, _ := strings.Cut(x.Messages[0], "\n")
			c.Failure = &xmlText{Message: printable(first), Text: printable(strings.Join(x.Messages, "\n"))}
		case Skipped:
			c.Skipped = &xmlText{Message: printable(x.Reason)}
		case Passed:
		}
		out.Cases = append(out.Cases, c)
	}
	for _, f := range r.Features {
		if f.Standing == Unproven {
			out.Failures++
			out.Cases = append(out.Cases, xmlCase{
				Class: "features", Name: string(f.Feature), Time: "0.000",
				Failure: &xmlText{Message: "claimed, and not proven: " + printable(f.Reason)},
			})
		}
	}
	out.Tests = len(out.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// printable drops what XML cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
