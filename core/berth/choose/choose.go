// SPDX-License-Identifier: Apache-2.0

// Package choose finds out what is meant when a project leaves it open, or a person asks for something else than it says:
// which run, which sandbox, which model. It starts nothing.
package choose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/model/openai"
	"github.com/berth-dev/berth/core/model/replay"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// FallbackModel is the model when nothing names one.
const FallbackModel = "gpt-5.6"

// modelEnv names the default model, as for the vendor's own agents.
const modelEnv = "OPENAI_DEFAULT_MODEL"

const apiReplay = "replay"

// Choice is a model with the settings of its calls.
type Choice struct {
	Model    model.Model
	Name     string
	Settings *spec.ModelSettings // what run, agent and model block say; nil = nothing
}

// Model makes the model that an agent uses in a run. Wish overrides what run and agent say, usual is the name where nothing
// says one; empty = no wish, and what the environment says.
func Model(ctx context.Context, p *spec.Project, r *spec.Run, a *spec.Agent, wish, usual string) (Choice, error) {
	choice := r.Model
	if choice == nil || a.OwnModel {
		choice = a.Model
	}
	if wish != "" && !a.OwnModel {
		choice = &spec.ModelChoice{Name: wish}
		if named := p.Models[wish]; named != nil {
			choice = &spec.ModelChoice{Model: named}
		}
	}
	if choice == nil {
		choice = &spec.ModelChoice{}
	}
	if choice.Model == nil {
		m, name, err := one(ctx, p, choice.Provider, choice.Name, usual)
		return Choice{Model: m, Name: name, Settings: r.Settings.Over(a.Settings)}, err
	}
	b := choice.Model
	if len(b.Fallback) > 0 {
		return Choice{}, errs.New(errs.Unsupported, "model %q has fallbacks, which berth cannot do yet", b.Label)
	}
	m, name, err := one(ctx, p, b.Provider, b.Name, usual)
	return Choice{Model: m, Name: name, Settings: r.Settings.Over(a.Settings.Over(b.Settings))}, err
}

// one makes the model of a provider.
func one(ctx context.Context, p *spec.Project, provider *spec.ModelProvider, name, usual string) (model.Model, string, error) {
	if prefix, rest, ok := strings.Cut(name, "/"); ok && provider == nil && p.Providers[prefix] != nil {
		provider, name = p.Providers[prefix], rest
	}
	if provider == nil {
		var err error
		if provider, err = onlyProvider(p); err != nil {
			return nil, "", err
		}
	}
	if name == "" {
		name = cmp.Or(usual, strings.ToLower(os.Getenv(modelEnv)), FallbackModel)
	}
	if provider != nil && provider.API == apiReplay {
		t, err := replay.Open(provider.Transcript)
		if err != nil {
			return nil, "", err
		}
		return replay.New(t), "replay", nil
	}
	m, err := openai.New(ctx, openai.Config{Provider: provider})
	if err != nil {
		return nil, "", err
	}
	return m, name, nil
}

// onlyProvider is the provider of a project that has one; nil when it has none.
func onlyProvider(p *spec.Project) (*spec.ModelProvider, error) {
	switch labels := slices.Sorted(maps.Keys(p.Providers)); len(labels) {
	case 0:
		return nil, nil
	case 1:
		return p.Providers[labels[0]], nil
	default:
		return nil, fmt.Errorf("the project has %d model providers (%s): name one in the model block, or write the model as %s/NAME",
			len(labels), strings.Join(labels, ", "), labels[0])
	}
}

// Run gives the run that is meant: the named one, the only one, the one called "default", or the only agent. The
// result is a copy that the caller may change.
func Run(p *spec.Project, name string) (*spec.Run, error) {
	labels := slices.Sorted(maps.Keys(p.Runs))
	switch {
	case name != "":
		if r := p.Runs[name]; r != nil {
			return clone(r), nil
		}
		if a := p.Agents[name]; a != nil {
			return &spec.Run{Label: name, Agent: a}, nil
		}
		return nil, fmt.Errorf("there is no run or agent %q; there are: %s", name, strings.Join(slices.Concat(labels, slices.Sorted(maps.Keys(p.Agents))), ", "))
	case len(labels) == 1:
		return clone(p.Runs[labels[0]]), nil
	case p.Runs["default"] != nil:
		return clone(p.Runs["default"]), nil
	case len(labels) > 1:
		return nil, fmt.Errorf("there are several runs, say which with --run: %s", strings.Join(labels, ", "))
	}
	agents := slices.Sorted(maps.Keys(p.Agents))
	switch len(agents) {
	case 0:
		return nil, errs.New(errs.ConfigInvalid, "the project in %s has no agent", p.Dir).
			WithHint(`write one: agent "NAME" { instructions = "..." }; berth init makes a first project in an empty directory`)
	case 1:
		return &spec.Run{Label: agents[0], Agent: p.Agents[agents[0]]}, nil
	default:
		return nil, fmt.Errorf("there are several agents and no run block, say which with --run: %s", strings.Join(agents, ", "))
	}
}

func clone(r *spec.Run) *spec.Run {
	c := *r
	return &c
}

// Sandbox gives the sandbox of a run: the wish, a label or a driver's name; what the run says; the only block.
// Nil is the default driver with its defaults.
func Sandbox(p *spec.Project, r *spec.Run, wish string) (*spec.Sandbox, error) {
	switch {
	case wish != "" && p.Sandboxes[wish] != nil:
		return p.Sandboxes[wish], nil
	case wish != "":
		return &spec.Sandbox{Label: wish, Driver: wish}, nil
	case r.Sandbox != nil:
		return r.Sandbox, nil
	}
	switch labels := slices.Sorted(maps.Keys(p.Sandboxes)); len(labels) {
	case 0:
		return nil, nil
	case 1:
		return p.Sandboxes[labels[0]], nil
	default:
		return nil, fmt.Errorf("there are several sandboxes, say which with --sandbox or in the run block: %s", strings.Join(labels, ", "))
	}
}
