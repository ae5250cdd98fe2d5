// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

func Schema() suite.Group {
	return suite.Group{
		Name: "schema", Doc: "the description is complete, and configuration is checked against it",
		Checks: []suite.Check{
			{Name: "name-and-version", Func: nameAndVersion},
			{Name: "features-once", Func: featuresOnce},
			{Name: "states", Func: stateVersions},
			{Name: "documented", Func: documented},
			{Name: "well-formed", Func: wellFormed},
			{Name: "defaults", Func: defaults},
			{Name: "isolation-is-said", Func: isolationSaid},
			{Name: "configured", Func: configured},
			{Name: "unknown-argument", Func: unknownArgument},
			{Name: "unknown-argument-of-driver", Process: true, Func: unknownOfDriver},
			{Name: "wrong-type", Func: wrongType},
			{Name: "not-one-of", Func: notOneOf},
			{Name: "create-refuses-nonsense", Func: createNonsense},
			{Name: "sensitive-stays-secret", Func: sensitiveStays},
		},
	}
}

var (
	goodName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,38}$`)
	goodVersion = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

func nameAndVersion(c *kit.C) {
	d := c.Main().Desc
	if !goodName.MatchString(d.Name) {
		c.Errorf("the name %q is none: a letter, then up to 38 of a-z, 0-9 and -", d.Name)
	}
	if !goodVersion.MatchString(d.Version) {
		c.Errorf("the version %q is not semantic", d.Version)
	}
}

func featuresOnce(c *kit.C) {
	d := c.Main().Desc
	for i, f := range d.Features {
		if slices.Contains(d.Features[:i], f) {
			c.Errorf("%s is claimed twice", f)
		}
		if slices.ContainsFunc(d.Unimplementable, func(u driver.Unimplementable) bool { return u.Feature == f }) {
			c.Errorf("%s is claimed, and said to be impossible", f)
		}
	}
	for _, u := range d.Unimplementable {
		if u.Reason == "" {
			c.Errorf("%s is said to be impossible, without a reason", u.Feature)
		}
	}
}

func stateVersions(c *kit.C) {
	d := c.Main().Desc
	for _, v := range d.StateReadable {
		if v >= d.StateVersion {
			c.Errorf("state version %d is said to be an older one than %d", v, d.StateVersion)
		}
	}
	if c.Claims(driver.StateUpgrade) && len(d.StateReadable) == 0 {
		c.Errorf("the driver claims %s, and no older version", driver.StateUpgrade)
	}
}

// each calls f for every attribute of both schemas.
func each(c *kit.C, f func(where string, a *schema.Attribute)) {
	var walk func(string, *schema.Block)
	walk = func(where string, b *schema.Block) {
		for i := range b.Attributes {
			f(where+b.Attributes[i].Name, &b.Attributes[i])
		}
		for i := range b.Blocks {
			walk(where+b.Blocks[i].Type+".", &b.Blocks[i].Block)
		}
	}
	d := c.Main().Desc
	for where, s := range map[string]*schema.Schema{"driver: ": d.ProcessConfig, "sandbox: ": d.SandboxConfig} {
		if s != nil {
			walk(where, &s.Block)
		}
	}
}

func documented(c *kit.C) {
	each(c, func(where string, a *schema.Attribute) {
		if a.Doc == "" {
			c.Errorf("%s has no documentation", where)
		}
	})
}

func wellFormed(c *kit.C) {
	each(c, func(where string, a *schema.Attribute) {
		if _, err := a.Type.MarshalJSON(); err != nil {
			c.Errorf("%s has no type: %v", where, err)
		}
		if a.Required && a.Default != nil {
			c.Errorf("%s is required and has a default", where)
		}
		if a.Pattern != "" {
			if _, err := regexp.Compile(a.Pattern); err != nil {
				c.Errorf("%s: %v", where, err)
			}
		}
	})
}

// empty says whether a body without arguments is complete.
func empty(s *schema.Schema) bool {
	return s != nil && !slices.ContainsFunc(s.Block.Attributes, func(a schema.Attribute) bool { return a.Required }) &&
		!slices.ContainsFunc(s.Block.Blocks, func(b schema.NestedBlock) bool { return b.Min > 0 })
}

func defaults(c *kit.C) {
	s := c.Main().Desc.SandboxConfig
	if !empty(s) {
		c.Skipf("the schema of sandboxes has arguments that are required")
	}
	found, err := c.Driver().Check(c.Ctx(), schema.Value{JSON: []byte("{}")}, false)
	if errs.CodeOf(err) == errs.Unsupported {
		c.Skipf("the driver does not validate")
	}
	c.OK(err, "validate an empty body")
	for _, d := range found {
		if !d.Warning {
			c.Errorf("the defaults are refused: %s: %s", d.Summary, d.Detail)
		}
	}
}

func isolationSaid(c *kit.C) {
	info := c.Box().Info()
	if len(info.Isolation) == 0 {
		c.Errorf("a sandbox does not say what is enforced")
	}
	for _, i := range info.Isolation {
		if i.Axis == "" || i.Statement == "" {
			c.Errorf("a statement about isolation without axis or text: %+v", i)
		}
	}
}

func configured(c *kit.C) {
	found, err := c.Driver().Check(c.Ctx(), c.Options().SandboxConfig, false)
	if errs.CodeOf(err) == errs.Unsupported {
		c.Skipf("the driver does not validate")
	}
	c.OK(err, "validate the configuration of this test")
	for _, d := range found {
		if !d.Warning {
			c.Errorf("the configuration of this test is refused: %s: %s", d.Summary, d.Detail)
		}
	}
}

// complains wants a finding about an attribute, or an error that says the same.
func complains(c *kit.C, what, attribute string, body map[string]any) {
	text, err := json.Marshal(body)
	c.OK(err, "encode")
	found, err := c.Driver().Check(c.Ctx(), schema.Value{JSON: text}, false)
	switch errs.CodeOf(err) {
	case errs.Unsupported:
		c.Skipf("the driver does not validate")
	case errs.ConfigInvalid, errs.InvalidArgument:
		return
	case "":
	default:
		c.Fatalf("%s: %v", what, err)
	}
	for _, d := range found {
		if !d.Warning && (len(d.Path) == 0 || d.Path[0].Attribute == attribute) {
			return
		}
	}
	c.Errorf("%s (%s) gives no finding: %+v", what, attribute, found)
}

func unknownArgument(c *kit.C) {
	if c.Main().Desc.SandboxConfig == nil {
		c.Skipf("the driver's sandboxes have no configuration")
	}
	complains(c, "an argument that nobody knows", "no_such_argument", map[string]any{"no_such_argument": true})
}

// unknownOfDriver wants that the driver block is checked as sandboxes are.
func unknownOfDriver(c *kit.C) {
	if c.Main().Desc.ProcessConfig == nil {
		c.Skipf("the driver has no configuration")
	}
	found, err := c.SpawnBare().Driver.Setup(c.Ctx(), c.Host(), c.Main().Desc.Features, schema.Value{JSON: []byte(`{"no_such_argument": true}`)})
	if code := errs.CodeOf(err); code == errs.ConfigInvalid || code == errs.InvalidArgument {
		return
	}
	c.OK(err, "configure a driver with an argument that nobody knows")
	if !slices.ContainsFunc(found, func(d driver.Diagnostic) bool { return !d.Warning }) {
		c.Errorf("a driver that is configured with an argument that nobody knows has no finding: %+v", found)
	}
}

func wrongType(c *kit.C) {
	s := c.Main().Desc.SandboxConfig
	if s == nil || len(s.Block.Attributes) == 0 {
		c.Skipf("the driver's sandboxes have no configuration")
	}
	a := s.Block.Attributes[0].Name
	complains(c, "an object where none belongs", a, map[string]any{a: map[string]any{"nested": []int{1}}})
}

func notOneOf(c *kit.C) {
	s := c.Main().Desc.SandboxConfig
	if s != nil {
		for _, a := range s.Block.Attributes {
			if len(a.OneOf) > 0 {
				complains(c, fmt.Sprintf("a value that is none of %v", a.OneOf), a.Name, map[string]any{a.Name: "no-such-value"})
				return
			}
		}
	}
	c.Skipf("no argument has a list of values")
}

func createNonsense(c *kit.C) {
	if c.Main().Desc.SandboxConfig == nil {
		c.Skipf("the driver's sandboxes have no configuration")
	}
	req := c.Request()
	req.Config = schema.Value{JSON: []byte(`{"no_such_argument": true}`)}
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create with an argument that nobody knows", errs.ConfigInvalid, errs.InvalidArgument)
}

func sensitiveStays(c *kit.C) {
	p := c.Main()
	if p.Program() == nil {
		c.Skipf("the driver's log cannot be seen")
	}
	c.Sh(c.Box(), "true")
	c.NoSecret("the driver's log", p.Program().Stderr.String())
}
