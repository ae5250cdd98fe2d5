// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Support says how a feature is offered.
type Support uint8

// The ways.
const (
	Unsupported Support = iota
	Emulated            // by the SDK, through Run
	Native
)

// Features says for each feature that needs an interface how it is offered.
type Features map[driver.Feature]Support

// driverFeatures are the optional interfaces of a driver; nil where it lacks one.
type driverFeatures struct {
	configurer driver.Configurer
	validator  driver.Validator
	health     driver.HealthWatcher
	lister     driver.Lister
	drainer    driver.Drainer
	upgrader   driver.StateUpgrader
	snapshots  driver.SnapshotStore
}

func discoverDriver(d driver.Driver) driverFeatures {
	var f driverFeatures
	f.configurer, _ = d.(driver.Configurer)
	f.validator, _ = d.(driver.Validator)
	f.health, _ = d.(driver.HealthWatcher)
	f.lister, _ = d.(driver.Lister)
	f.drainer, _ = d.(driver.Drainer)
	f.upgrader, _ = d.(driver.StateUpgrader)
	f.snapshots, _ = d.(driver.SnapshotStore)
	return f
}

// check compares with what the driver claims.
func (f driverFeatures) check(d driver.Description) error {
	have := Features{
		driver.LifeList:      native(f.lister != nil),
		driver.ConfigUnknown: native(f.validator != nil),
		driver.StateUpgrade:  native(f.upgrader != nil),
	}
	if missing := have.missing(d.Features); len(missing) > 0 {
		return errs.New(errs.Internal, "driver %s claims %v, but does not implement the interface", d.Name, missing)
	}
	if d.Name == "" || d.Version == "" {
		return errs.New(errs.Internal, "the driver's description lacks its name or version")
	}
	return nil
}

// sandboxFeatures is a sandbox with its optional interfaces; nil where it lacks one.
type sandboxFeatures struct {
	sandbox     driver.Sandbox
	stopper     driver.Stopper
	pauser      driver.Pauser
	inspector   driver.Inspector
	deadline    driver.DeadlineExtender
	watcher     driver.Watcher
	files       driver.FileSystem
	watchFiles  driver.FileWatcher
	tree        driver.TreeIO
	table       driver.ProcessTable
	snapshotter driver.NativeSnapshotter
	exposer     driver.PortExposer
	forwarder   driver.PortForwarder
	mounter     driver.Mounter
	accounts    driver.AccountKeeper

	filesEmulated, treeEmulated bool
}

func (s *Server) discoverSandbox(sb driver.Sandbox, grants []driver.PathGrant) sandboxFeatures {
	f := sandboxFeatures{sandbox: sb}
	f.stopper, _ = sb.(driver.Stopper)
	f.pauser, _ = sb.(driver.Pauser)
	f.inspector, _ = sb.(driver.Inspector)
	f.deadline, _ = sb.(driver.DeadlineExtender)
	f.watcher, _ = sb.(driver.Watcher)
	f.files, _ = sb.(driver.FileSystem)
	f.watchFiles, _ = sb.(driver.FileWatcher)
	f.tree, _ = sb.(driver.TreeIO)
	f.table, _ = sb.(driver.ProcessTable)
	f.snapshotter, _ = sb.(driver.NativeSnapshotter)
	f.exposer, _ = sb.(driver.PortExposer)
	f.forwarder, _ = sb.(driver.PortForwarder)
	f.mounter, _ = sb.(driver.Mounter)
	f.accounts, _ = sb.(driver.AccountKeeper)
	if s.cfg.Emulate != nil && (f.files == nil || f.tree == nil) {
		files, tree := s.cfg.Emulate(sb, grants)
		if f.files == nil && files != nil {
			f.files, f.filesEmulated = files, true
		}
		if f.tree == nil && tree != nil {
			f.tree, f.treeEmulated = tree, true
		}
	}
	return f
}

// features reports what the sandbox offers.
func (f sandboxFeatures) features() Features {
	out := Features{}
	set := func(s Support, names ...driver.Feature) {
		for _, n := range names {
			out[n] = s
		}
	}
	set(native(f.table != nil), driver.ProcAttach, driver.ProcList)
	files, tree := native(f.files != nil), native(f.tree != nil)
	if f.filesEmulated {
		files = Emulated
	}
	if f.treeEmulated {
		tree = Emulated
	}
	set(files, driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks)
	set(tree, driver.TreeNative, driver.TreeZstd, driver.TreeHostRefs, driver.TreeTemplate)
	set(native(f.watchFiles != nil), driver.FilesWatch)
	set(native(f.snapshotter != nil), driver.SnapNative, driver.SnapMemory)
	set(native(f.exposer != nil), driver.PortHTTP, driver.PortTCP, driver.PortPublic, driver.PortDynamic)
	set(native(f.forwarder != nil), driver.PortForward)
	set(native(f.stopper != nil), driver.LifeStop)
	set(native(f.pauser != nil), driver.LifePause)
	set(native(f.deadline != nil), driver.LifeDeadline)
	set(native(f.watcher != nil), driver.LifeWatch)
	set(native(f.accounts != nil), driver.AcctNative)
	return out
}

func native(ok bool) Support {
	if ok {
		return Native
	}
	return Unsupported
}

// missing are the claimed features that are known not to be native.
func (f Features) missing(claimed []driver.Feature) []driver.Feature {
	var out []driver.Feature
	for _, c := range claimed {
		if s, known := f[c]; known && s != Native {
			out = append(out, c)
		}
	}
	return out
}

// checkSandbox logs claims that a sandbox does not keep, once for each. They stay usable as far as they are emulated.
func (s *Server) checkSandbox(f sandboxFeatures) {
	for _, feature := range f.features().missing(s.desc.Features) {
		s.mu.Lock()
		logged := s.faults[string(feature)]
		s.faults[string(feature)] = true
		s.mu.Unlock()
		if !logged {
			s.log.Error("driver claims a feature that its sandboxes do not implement", "feature", string(feature))
		}
	}
}

// Features reports what a sandbox that this process knows offers.
func (s *Server) Features(sandboxID string) (Features, error) {
	ss, err := s.session(sandboxID)
	if err != nil {
		return nil, err
	}
	return ss.sandbox().features(), nil
}

func unsupported(feature driver.Feature, what string) error {
	return errs.New(errs.Unsupported, "this driver does not offer %s", what).With("feature", string(feature))
}
