// SPDX-License-Identifier: Apache-2.0

package client

import "time"

// State is where a sandbox is in its life.
type State string

// The states. Those that end in -ing pass by themselves.
const (
	StateCreating         State = "creating"
	StateRestoring        State = "restoring"
	StateStarting         State = "starting"
	StateStarted          State = "started"
	StateStopping         State = "stopping"
	StateStopped          State = "stopped"
	StateArchiving        State = "archiving"
	StateArchived         State = "archived"
	StatePausing          State = "pausing"
	StatePaused           State = "paused"
	StateResuming         State = "resuming"
	StateResizing         State = "resizing"
	StateSnapshotting     State = "snapshotting"
	StateForking          State = "forking"
	StatePendingBuild     State = "pending_build"
	StateBuildingSnapshot State = "building_snapshot"
	StatePullingSnapshot  State = "pulling_snapshot"
	StateDestroying       State = "destroying"
	StateDestroyed        State = "destroyed"
	StateError            State = "error"
	StateBuildFailed      State = "build_failed"
	StateUnknown          State = "unknown"
)

// Passing says whether a state passes by itself.
func (s State) Passing() bool {
	switch s {
	case StateStarted, StateStopped, StateArchived, StatePaused, StateDestroyed, StateError, StateBuildFailed:
		return false
	default:
		return true
	}
}

// Gone says whether a sandbox in this state is no more, or soon.
func (s State) Gone() bool { return s == StateDestroying || s == StateDestroyed }

// Sandbox is what the vendor says of one.
type Sandbox struct {
	ID                  string            `json:"id"`
	OrganizationID      string            `json:"organizationId"`
	Name                string            `json:"name"`
	Snapshot            string            `json:"snapshot"`
	User                string            `json:"user"`
	Env                 map[string]string `json:"env"`
	Labels              map[string]string `json:"labels"`
	Public              bool              `json:"public"`
	NetworkBlockAll     bool              `json:"networkBlockAll"`
	NetworkAllowList    string            `json:"networkAllowList"`
	DomainAllowList     string            `json:"domainAllowList"`
	Target              string            `json:"target"`
	CPU                 float64           `json:"cpu"`
	GPU                 float64           `json:"gpu"`
	Memory              float64           `json:"memory"` // GiB
	Disk                float64           `json:"disk"`   // GiB
	State               State             `json:"state"`
	DesiredState        State             `json:"desiredState"`
	ErrorReason         string            `json:"errorReason"`
	Recoverable         bool              `json:"recoverable"`
	BackupState         string            `json:"backupState"`
	AutoStopInterval    int               `json:"autoStopInterval"`    // minutes
	AutoArchiveInterval int               `json:"autoArchiveInterval"` // minutes
	AutoDeleteInterval  int               `json:"autoDeleteInterval"`  // minutes
	Volumes             []VolumeMount     `json:"volumes"`
	CreatedAt           time.Time         `json:"createdAt"`
	UpdatedAt           time.Time         `json:"updatedAt"`
	LastActivityAt      time.Time         `json:"lastActivityAt"`
	Class               string            `json:"sandboxClass"`
	DaemonVersion       string            `json:"daemonVersion"`
	ToolboxProxyURL     string            `json:"toolboxProxyUrl"`
}

// Create is the wish for a sandbox. Zero fields are not sent.
type Create struct {
	Name             string            `json:"name,omitempty"` // unique in the organization
	Snapshot         string            `json:"snapshot,omitempty"`
	Build            *Build            `json:"buildInfo,omitempty"`
	CPU              int               `json:"cpu,omitempty"`    // with Build only
	Memory           int               `json:"memory,omitempty"` // GiB; with Build only
	Disk             int               `json:"disk,omitempty"`   // GiB; with Build only
	GPU              int               `json:"gpu,omitempty"`
	GPUType          []string          `json:"gpuType,omitempty"`
	User             string            `json:"user,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Public           bool              `json:"public,omitempty"`
	NetworkBlockAll  bool              `json:"networkBlockAll,omitempty"`
	NetworkAllowList string            `json:"networkAllowList,omitempty"` // CIDR blocks with commas between
	DomainAllowList  string            `json:"domainAllowList,omitempty"`  // names with commas between
	Target           string            `json:"target,omitempty"`
	AutoStop         *int              `json:"autoStopInterval,omitempty"`    // minutes; 0 = never
	AutoArchive      *int              `json:"autoArchiveInterval,omitempty"` // minutes stopped; 0 = as late as it can be
	AutoDelete       *int              `json:"autoDeleteInterval,omitempty"`  // minutes stopped; -1 = never, 0 = as it stops
	Volumes          []VolumeMount     `json:"volumes,omitempty"`
	LinkedSandbox    string            `json:"linkedSandbox,omitempty"`
}

// Build makes an image.
type Build struct {
	Dockerfile    string   `json:"dockerfileContent"`
	ContextHashes []string `json:"contextHashes,omitempty"`
}

// FromImage is the build of an image that there is.
func FromImage(image string) *Build { return &Build{Dockerfile: "FROM " + image + "\n"} }

// VolumeMount puts a volume into a sandbox.
type VolumeMount struct {
	VolumeID  string `json:"volumeId"`
	MountPath string `json:"mountPath"`
	Subpath   string `json:"subpath,omitempty"`
}

// Resize is the wish for other resources; zero = as they are.
type Resize struct {
	CPU    int `json:"cpu,omitempty"`
	Memory int `json:"memory,omitempty"`
	Disk   int `json:"disk,omitempty"`
}

// Network is a policy for what a sandbox may reach. Nil = as it is.
type Network struct {
	BlockAll        *bool   `json:"networkBlockAll,omitempty"`
	AllowList       *string `json:"networkAllowList,omitempty"`
	DomainAllowList *string `json:"domainAllowList,omitempty"`
}

// Preview is the address of a port inside. Without its token a private sandbox sends to a login.
type Preview struct {
	URL   string `json:"url"`
	Token string `json:"token"` // another after each start
}

// SignedPreview is an address that needs nothing else until it expires.
type SignedPreview struct {
	Port  int    `json:"port"`
	Token string `json:"token"`
	URL   string `json:"url"`
}

// SSH is a way in for a person.
type SSH struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expiresAt"`
	Command string    `json:"sshCommand"`
}

// Snapshot is what sandboxes are made from.
type Snapshot struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	State       string    `json:"state"`
	General     bool      `json:"general"` // the vendor's own
	Size        float64   `json:"size"`    // GiB; 0 = unknown
	ErrorReason string    `json:"errorReason"`
	CreatedAt   time.Time `json:"createdAt"`
}

// SnapshotActive is the state of a snapshot that sandboxes can be made from.
const SnapshotActive = "active"

// NewSnapshot is the wish for one.
type NewSnapshot struct {
	Name       string   `json:"name"`
	Image      string   `json:"imageName,omitempty"`
	Build      *Build   `json:"buildInfo,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	CPU        int      `json:"cpu,omitempty"`
	Memory     int      `json:"memory,omitempty"`
	Disk       int      `json:"disk,omitempty"`
	GPU        int      `json:"gpu,omitempty"`
	Region     string   `json:"regionId,omitempty"`
}

// Volume is storage that outlives sandboxes.
type Volume struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	State       string    `json:"state"`
	ErrorReason string    `json:"errorReason"`
	CreatedAt   time.Time `json:"createdAt"`
}

// VolumeReady is the state of a volume that can be used.
const VolumeReady = "ready"
