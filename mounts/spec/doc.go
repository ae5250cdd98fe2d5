// SPDX-License-Identifier: Apache-2.0

// Package spec says what storage can be mounted: the kinds with their fields, what is wrong with a value, how a kind is
// reached, which strategies bring it into whose sandboxes, and what a strategy lets the sandbox see of the credentials.
//
// It is data and pure functions: it opens nothing, links no client of any storage, and never sees a credential but to put
// it beside the other options of a backend.
package spec

import (
	"slices"

	"github.com/berth-dev/berth/sdk/driver"
)

// The kinds of remote storage, as the language names them.
const (
	S3        = "s3"
	R2        = "r2"
	GCS       = "gcs"
	AzureBlob = "azure_blob"
	Box       = "box"
	S3Files   = "s3_files"
	Rclone    = "rclone" // any backend that berth-mount-rclone has
)

// Kinds are the kinds, in the order in which documents name them.
func Kinds() []string { return []string{S3, R2, GCS, AzureBlob, Box, S3Files, Rclone} }

// The strategies, as the language names them.
const (
	Auto         = "auto"
	HostRclone   = "host_rclone"
	Native       = "native"
	DockerVolume = "docker_volume"
	InContainer  = "in_container"
)

// Where is who holds the credentials under a strategy.
type Where string

// The places. Only the last is inside the sandbox.
const (
	InHelper  Where = "helper" // a process of the host that serves this one session
	InVendor  Where = "vendor" // the service that runs the sandbox
	InEngine  Where = "engine" // the container engine: whoever may talk to it can read them
	InSandbox Where = "sandbox"
)

// A Strategy is a way to bring storage in.
type Strategy struct {
	Name  string
	Doc   string
	Keys  Where
	Built bool // this version does it
}

// Strategies are all of them but auto, the best first: that is the order in which auto tries.
func Strategies() []Strategy {
	return []Strategy{
		{HostRclone, "A process on the host speaks with the storage; the sandbox gets a file system.", InHelper, true},
		{Native, "The vendor of the sandbox mounts it.", InVendor, true},
		{DockerVolume, "A volume plugin of the container engine mounts it.", InEngine, false},
		{InContainer, "A tool inside the sandbox mounts it.", InSandbox, false},
	}
}

// A Class says how much a credential that is inside the sandbox gives away.
type Class string

// The classes. A broad one is worth more than the one mount: it needs an acknowledgement of its own.
const (
	None   Class = "none"
	Scoped Class = "mount"
	Broad  Class = "broad"
)

// supported is the matrix: by driver and kind, the strategies that this version has.
var supported = map[string]map[string][]string{
	"unixlocal": hostRclone,
	"docker":    hostRclone,
	"modal":     {S3: {Native}, R2: {Native}, GCS: {Native}},
}

// hostRclone are the kinds that a process on the host can speak with. S3 Files is a network file system of the kernel's.
var hostRclone = map[string][]string{
	S3: {HostRclone}, R2: {HostRclone}, GCS: {HostRclone}, AzureBlob: {HostRclone}, Box: {HostRclone}, Rclone: {HostRclone},
}

// Drivers are the drivers that can mount anything.
func Drivers() []string { return []string{"unixlocal", "docker", "modal"} }

// Supports gives the strategies that a driver has for a kind, the best first; none = it cannot mount it.
func Supports(driverName, kind string) []string { return slices.Clone(supported[driverName][kind]) }

// Describe is the matrix of one driver. A driver does not claim it: it attaches what the core has another process serve.
func Describe(driverName string) []driver.MountSupport {
	var out []driver.MountSupport
	for _, k := range Kinds() {
		if s := Supports(driverName, k); len(s) > 0 {
			out = append(out, driver.MountSupport{Kind: k, Strategies: s})
		}
	}
	return out
}

// Choose picks the strategy of a mount from what the driver has for its kind. wanted is auto or a strategy; allow, unless
// empty, are those that auto may choose from, the best first.
func Choose(wanted string, allow, can []string) (string, bool) {
	if wanted != Auto && wanted != "" {
		return wanted, slices.Contains(can, wanted)
	}
	if len(allow) == 0 {
		for _, s := range Strategies() {
			if s.Name != InContainer { // it lets keys in: it has to be asked for
				allow = append(allow, s.Name)
			}
		}
	}
	for _, s := range allow {
		if slices.Contains(can, s) {
			return s, true
		}
	}
	return "", false
}

// Tools are the programs inside a sandbox that can mount a kind.
func Tools(kind string) []string {
	switch kind {
	case S3, GCS:
		return []string{"rclone", "mountpoint"}
	case R2, Box, Rclone:
		return []string{"rclone"}
	case AzureBlob:
		return []string{"rclone", "fuse"}
	case S3Files:
		return []string{"s3files"}
	}
	return nil
}

// Exposure is the class of a credential under a strategy that keeps the credentials in the sandbox.
func Exposure(kind, credential, tool string) Class {
	switch {
	case tool == "s3files", kind == AzureBlob && tool == "fuse":
		return Broad // these tools look for what identity the machine has
	case slices.Contains([]string{"service_account_file", "config_file", "identity_client_id", "ambient"}, credential):
		return Broad
	}
	return Scoped
}

// Commands are those that a model is told to keep to on remote storage, when a manifest names no others.
func Commands() []string {
	return []string{
		"ls", "find", "stat", "cat", "less", "head", "tail", "du", "grep", "rg", "wc", "sort", "cut", "cp", "tee", "echo", "mkdir", "rm",
	}
}
