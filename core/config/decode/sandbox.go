// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

func (d *decoder) sandbox(v *spec.Sandbox, r read.Reader, l string) {
	name := r.String("driver")
	arc, lim, times := r.Block("archive_limits"), r.Block("limits"), r.Block("timeouts")
	life, net := r.Block("lifetime"), r.Block("network")
	*v = spec.Sandbox{
		Label: l, Driver: name, Config: d.driverConfig(r, d.res.DriverOf(r.Node(), name), false), Ports: d.ports(r), Snapshot: d.snapshot(r.Block("snapshot")),
		Session: d.session(r.Block("session")), Trusted: r.Strings("trusted_mount_credential_paths"), Pos: r.Pos(),
		Lifetime: spec.Lifetime{Max: life.Duration("max"), Extend: life.BoolPtr("extend"), SnapshotBefore: life.Duration("snapshot_before"), Idle: life.Duration("idle")},
		Limits: spec.Limits{
			ManifestEntries: lim.IntPtr("manifest_entries"), LocalDirFiles: lim.IntPtr("local_dir_files"), Processes: lim.IntPtr("processes"),
			OutputBytes: lim.SizePtr("output_bytes"), MemoryBytes: lim.Size("memory_bytes"), CPUs: lim.Float("cpus"),
		},
		Archive: spec.ArchiveLimits{
			MaxInputBytes: arc.Size("max_input_bytes"), MaxExtractedBytes: arc.Size("max_extracted_bytes"), MaxMembers: arc.Size("max_members"),
		},
		Network: spec.Network{Mode: net.String("mode"), Allow: net.Strings("allow"), Pos: net.Pos()},
		Timeouts: spec.Timeouts{
			Create: times.DurationPtr("create"), Resume: times.DurationPtr("resume"), Exec: times.DurationPtr("exec"), Stop: times.DurationPtr("stop"),
		},
	}
	if n := d.res.Registry.Find(r.Node().Env.Scope.Module, "driver."+name); n != nil {
		v.Driver = d.labels[n]
	}
	d.unlimited(lim)
	d.network(net)
}

func (d *decoder) unlimited(r read.Reader) {
	if !r.OK() {
		return
	}
	for _, a := range r.Node().Sorted() {
		if f := r.FloatPtr(a.Name); f != nil && *f == 0 {
			d.add(diag.Warnf(diag.OutOfRange, a.Expr.Range(), "%q has no bound", a.Name).Labelf("0 means unlimited"))
		}
	}
}

func (d *decoder) network(r read.Reader) {
	if !r.OK() {
		return
	}
	allow, mode := r.Node().Attr("allow"), r.String("mode")
	switch {
	case allow != nil && mode != "allow_list" && !r.Node().Attrs["allow"].Bad:
		d.add(diag.Errorf(diag.Conflicting, allow.NameRange, `"allow" is for mode = "allow_list"`).Labelf("it has no effect here"))
	case allow == nil && mode == "allow_list":
		d.add(diag.Errorf(diag.MissingArgument, r.Node().Header, "missing required argument").Labelf(`"allow" is required for mode = "allow_list"`))
	}
}

// ports reads numbers, and objects with port, protocol and public.
func (d *decoder) ports(r read.Reader) []spec.Port {
	a := r.Node().Attr("exposed_ports")
	if a == nil || a.Bad || a.Value == cty.NilVal {
		return nil
	}
	v, _ := a.Value.UnmarkDeep()
	if !v.IsWhollyKnown() || v.IsNull() {
		return nil
	}
	wrong := func(rng hcl.Range) {
		d.add(diag.Errorf(diag.WrongType, rng, "wrong type").
			Labelf(`write numbers, or objects such as { port = 8080, protocol = "http", public = true }`))
	}
	if !v.CanIterateElements() || v.Type().IsObjectType() || v.Type().IsMapType() {
		wrong(a.Expr.Range())
		return nil
	}
	var out []spec.Port
	first := map[uint16]hcl.Range{}
	i := 0
	for it := v.ElementIterator(); it.Next(); i++ {
		_, e := it.Element()
		rng := read.Item(a.Expr, i)
		p, num, ok := port(e)
		if !ok {
			wrong(rng)
			continue
		}
		n, acc := num.Int64()
		if acc != big.Exact || n < 1 || n > 65535 {
			d.add(diag.Errorf(diag.OutOfRange, rng, "port is out of range").Labelf("from 1 to 65535"))
			continue
		}
		p.Port = uint16(n)
		if !has([]string{"", "http", "https", "tcp", "ws"}, p.Protocol) {
			d.add(diag.Errorf(diag.NotOneOf, rng, "protocol cannot be %q", p.Protocol).Labelf("one of: http, https, tcp, ws"))
			continue
		}
		if at, twice := first[p.Port]; twice {
			d.add(diag.Errorf(diag.DuplicateName, rng, "port %d is given twice", p.Port).Labelf("once is enough").Relate(at, "first here"))
			continue
		}
		first[p.Port] = rng
		out = append(out, p)
	}
	return out
}

func port(e cty.Value) (p spec.Port, num *big.Float, ok bool) {
	if e.IsNull() {
		return p, nil, false
	}
	if e.Type() == cty.Number {
		return p, e.AsBigFloat(), true
	}
	if !e.Type().IsObjectType() && !e.Type().IsMapType() {
		return p, nil, false
	}
	for it := e.ElementIterator(); it.Next(); {
		k, x := it.Element()
		switch name := k.AsString(); {
		case x.IsNull():
		case name == "port" && x.Type() == cty.Number:
			num = x.AsBigFloat()
		case name == "protocol" && x.Type() == cty.String:
			p.Protocol = x.AsString()
		case name == "public" && x.Type() == cty.Bool:
			p.Public = x.True()
		default:
			return p, nil, false
		}
	}
	return p, num, num != nil
}

func (d *decoder) snapshot(r read.Reader) *spec.SnapshotPolicy {
	if !r.OK() {
		return nil
	}
	s := &spec.SnapshotPolicy{
		Kind: r.Node().Name(), Store: one[spec.SnapshotStore](d, r, "store"), Dir: r.Path("dir"), Persist: r.String("persist"),
		Interval: r.Duration("interval"), Restore: r.String("restore"), Exclude: r.Strings("exclude"), Native: r.String("native"),
	}
	a := r.Node().Attr("interval")
	switch {
	case s.Persist == "interval" && a == nil:
		d.add(diag.Errorf(diag.MissingArgument, r.Node().Header, "missing required argument").
			Labelf(`"interval" is required for persist = "interval"`))
	case s.Persist != "interval" && a != nil && !a.Bad:
		d.add(diag.Errorf(diag.Conflicting, a.NameRange, `"interval" is for persist = "interval"`).Labelf("it has no effect here"))
	}
	return s
}

func (d *decoder) session(r read.Reader) spec.SessionPolicy {
	if !r.OK() {
		return spec.SessionPolicy{}
	}
	s := spec.SessionPolicy{
		Source: r.String("source"), Key: r.Text("key"), StateFile: r.Path("state_file"), OnGone: r.String("on_gone"),
		OnDrift: r.String("on_drift"), AtEnd: r.String("at_end"), OrphanTTL: r.DurationPtr("orphan_ttl"),
	}
	if a := r.Node().Attr("source"); a != nil && !a.Bad && s.Source != "create" && !r.Has("key") && !r.Has("state_file") {
		d.add(diag.Errorf(diag.MissingArgument, r.Node().Header, "missing required argument").
			Labelf(`source = %q needs "key" or "state_file" to find the sandbox by`, s.Source))
	}
	return s
}
