// SPDX-License-Identifier: Apache-2.0

package proto_test

import (
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"

	_ "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// The generated code carries a descriptor of the file it was made from: it must be that of today's file.
func TestGeneratedCodeIsFresh(t *testing.T) {
	files, err := filepath.Glob("berth/driver/v1/*.proto")
	if err != nil || len(files) == 0 {
		t.Fatalf("no .proto files: %v", err)
	}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{})}
	compiled, err := compiler.Compile(t.Context(), files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range compiled {
		generated, err := protoregistry.GlobalFiles.FindFileByPath(f.Path())
		if err != nil {
			t.Errorf("%s has no generated code: run make generate", f.Path())
			continue
		}
		want, got := protodesc.ToFileDescriptorProto(f), protodesc.ToFileDescriptorProto(generated)
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("%s: the generated code is stale, run make generate (-file +code):\n%s", f.Path(), d)
		}
	}
}
