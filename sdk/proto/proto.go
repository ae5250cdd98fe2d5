// SPDX-License-Identifier: Apache-2.0

// Package proto holds the driver protocol: the .proto files are the contract, the Go code beside them is generated
// by `make generate` and committed.
package proto
