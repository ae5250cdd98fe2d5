// SPDX-License-Identifier: Apache-2.0

// Package backends links the parts of rclone that berth uses: a backend for each kind of storage, and the way to mount.
// Nothing else of this repository imports rclone's backends; what is not named here is not in the binary.
package backends

import (
	// The storages of mounts/spec. R2 and HMAC keys of GCS speak S3.
	_ "github.com/rclone/rclone/backend/azureblob"
	_ "github.com/rclone/rclone/backend/box"
	_ "github.com/rclone/rclone/backend/googlecloudstorage"
	_ "github.com/rclone/rclone/backend/local" // of the cache
	_ "github.com/rclone/rclone/backend/s3"
	_ "github.com/rclone/rclone/backend/sftp"
	_ "github.com/rclone/rclone/backend/webdav"
	// mount2 is the way to mount that takes a FUSE descriptor.
	_ "github.com/rclone/rclone/cmd/mount2"
)
