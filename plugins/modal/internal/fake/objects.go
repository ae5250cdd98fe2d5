// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-dev/berth/plugins/modal/internal/fake/cell"
)

// controlPlane serves the calls of modal.client.ModalClient that sandboxes need.
type controlPlane struct {
	pb.UnimplementedModalClientServer
	*Server
}

// image is a tree of files.
type image struct {
	id      string
	dir     string
	env     map[string]string
	failed  string    // why it could not be built; empty = it was
	expires time.Time // zero = never
	subtree bool      // of a directory, to be mounted
}

type secret struct {
	id, name string
	values   map[string]string
}

var objectName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func newID(prefix string) string { return prefix + "-" + ulid.Make().String() }

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// AuthTokenGet gives a token that calls carry.
func (c *controlPlane) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: c.token()}.Build(), nil
}

// AppGetOrCreate finds or makes an app.
func (c *controlPlane) AppGetOrCreate(_ context.Context, r *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	if !objectName.MatchString(r.GetAppName()) {
		return nil, invalid("invalid App name: %q", r.GetAppName())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.GetEnvironmentName() + "/" + r.GetAppName()
	id := c.apps[key]
	if id == "" {
		if r.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "App %q not found", r.GetAppName())
		}
		id = newID("ap")
		c.apps[key] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

// EnvironmentGetOrCreate tells the image builder's version.
func (c *controlPlane) EnvironmentGetOrCreate(_ context.Context, r *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-1",
		Metadata: pb.EnvironmentMetadata_builder{
			Name: r.GetDeploymentName(), Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
		}.Build(),
	}.Build(), nil
}

// ImageGetOrCreate builds an image: FROM a known one, ENV, and RUN as the file system of a cell. The result comes by
// ImageJoinStreaming.
func (c *controlPlane) ImageGetOrCreate(ctx context.Context, r *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	commands := r.GetImage().GetDockerfileCommands()
	if len(commands) == 0 || !strings.HasPrefix(commands[0], "FROM ") {
		return nil, invalid("an image begins with FROM")
	}
	if r.GetBuilderVersion() == "" {
		return nil, invalid("the image builder version is missing")
	}
	img := &image{id: "im-" + ulid.Make().String(), env: map[string]string{}}
	from := strings.TrimSpace(strings.TrimPrefix(commands[0], "FROM "))
	c.mu.Lock()
	dir := c.opts.Images[from]
	for _, b := range r.GetImage().GetBaseImages() {
		if base := c.images[b.GetImageId()]; base != nil && b.GetDockerTag() == from {
			dir = base.dir
			maps.Copy(img.env, base.env)
		}
	}
	c.mu.Unlock()
	switch {
	case dir == "":
		img.failed = "failed to pull " + from + ": manifest unknown"
	case len(commands) == 1:
		img.dir = dir
	default:
		img.dir = c.path("images", img.id)
		if err := cell.Copy(dir, img.dir); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		img.failed = c.build(ctx, img, commands[1:])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images[img.id] = img
	return pb.ImageGetOrCreateResponse_builder{ImageId: img.id}.Build(), nil
}

// build does the commands of a Dockerfile, and says what failed.
func (c *controlPlane) build(ctx context.Context, img *image, commands []string) string {
	for _, line := range commands {
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToUpper(what) {
		case "ENV":
			k, v, _ := strings.Cut(rest, "=")
			img.env[k] = strings.Trim(v, `"`)
		case "RUN":
			in, err := cell.Start(ctx, cell.Options{Root: img.dir, Argv: []string{"/bin/sh", "-c", rest}, Env: img.env})
			if err != nil {
				return err.Error()
			}
			<-in.Done()
			if code := in.ExitCode(); code != 0 {
				return "RUN " + rest + " failed"
			}
		default:
			return "the fake builds FROM, ENV and RUN, not " + what
		}
	}
	return ""
}

// ImageJoinStreaming tells how a build ended.
func (c *controlPlane) ImageJoinStreaming(r *pb.ImageJoinStreamingRequest, s grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse]) error {
	c.mu.Lock()
	img := c.images[r.GetImageId()]
	c.mu.Unlock()
	if img == nil {
		return status.Error(codes.NotFound, "image not found")
	}
	result := pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
	if img.failed != "" {
		result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: img.failed}.Build()
	}
	return s.Send(pb.ImageJoinStreamingResponse_builder{Result: result, Eof: true}.Build())
}

func (c *Server) imageLocked(id string) (*image, error) {
	img := c.images[id]
	if img == nil || !img.expires.IsZero() && time.Now().After(img.expires) {
		return nil, status.Errorf(codes.NotFound, "image %q not found", id)
	}
	return img, nil
}

// ImageFromId finds an image.
func (c *controlPlane) ImageFromId(_ context.Context, r *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.imageLocked(r.GetImageId()); err != nil {
		return nil, err
	}
	return pb.ImageFromIdResponse_builder{ImageId: r.GetImageId()}.Build(), nil
}

// ImageGetByTag finds a published image.
func (c *controlPlane) ImageGetByTag(_ context.Context, r *pb.ImageGetByTagRequest) (*pb.ImageGetByTagResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.tags[r.GetTag()]
	if _, err := c.imageLocked(id); err != nil {
		return nil, err
	}
	return pb.ImageGetByTagResponse_builder{ImageId: id}.Build(), nil
}

// ImagePublish names an image.
func (c *controlPlane) ImagePublish(_ context.Context, r *pb.ImagePublishRequest) (*pb.ImagePublishResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.imageLocked(r.GetImageId()); err != nil {
		return nil, err
	}
	c.tags[r.GetTag()] = r.GetImageId()
	return &pb.ImagePublishResponse{}, nil
}

// ImageDelete deletes an image.
func (c *controlPlane) ImageDelete(_ context.Context, r *pb.ImageDeleteRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	img, err := c.imageLocked(r.GetImageId())
	delete(c.images, r.GetImageId())
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(img.dir, c.dir) {
		_ = os.RemoveAll(img.dir) // Close removes what is left
	}
	return &emptypb.Empty{}, nil
}

// Images are the ids of the images that snapshots made and nobody deleted.
func (s *Server) Images() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, img := range s.images {
		if strings.HasPrefix(img.dir, s.dir) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// AddSecret makes a named secret.
func (s *Server) AddSecret(name string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID("st")
	s.secrets[id] = &secret{id: id, name: name, values: maps.Clone(values)}
}

// SecretGetOrCreate finds a named secret, or makes one that belongs to nobody.
func (c *controlPlane) SecretGetOrCreate(_ context.Context, r *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.GetObjectCreationType() == pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL {
		id := newID("st")
		c.secrets[id] = &secret{id: id, values: maps.Clone(r.GetEnvDict())}
		return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
	}
	for _, x := range c.secrets {
		if x.name != r.GetDeploymentName() || x.name == "" {
			continue
		}
		for _, k := range r.GetRequiredKeys() {
			if _, ok := x.values[k]; !ok {
				return nil, status.Errorf(codes.NotFound, "Secret %q has no key %q", x.name, k)
			}
		}
		return pb.SecretGetOrCreateResponse_builder{SecretId: x.id}.Build(), nil
	}
	return nil, status.Errorf(codes.NotFound, "Secret %q not found", r.GetDeploymentName())
}

// VolumeGetOrCreate finds or makes a volume.
func (c *controlPlane) VolumeGetOrCreate(_ context.Context, r *pb.VolumeGetOrCreateRequest) (*pb.VolumeGetOrCreateResponse, error) {
	if !objectName.MatchString(r.GetDeploymentName()) {
		return nil, invalid("invalid Volume name: %q", r.GetDeploymentName())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.volumes[r.GetDeploymentName()]
	if id == "" {
		if r.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "Volume %q not found", r.GetDeploymentName())
		}
		id = newID("vo")
		c.volumes[r.GetDeploymentName()] = id
	}
	return pb.VolumeGetOrCreateResponse_builder{VolumeId: id}.Build(), nil
}

// ProxyGet finds no proxy: the fake has none.
func (c *controlPlane) ProxyGet(_ context.Context, r *pb.ProxyGetRequest) (*pb.ProxyGetResponse, error) {
	return nil, status.Errorf(codes.NotFound, "Proxy %q not found", r.GetName())
}

// AddBucket makes a bucket, and gives the directory that holds its objects.
func (s *Server) AddBucket(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = true
	dir := s.path("buckets", name)
	return dir, os.MkdirAll(dir, 0o755)
}
