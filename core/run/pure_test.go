// SPDX-License-Identifier: Apache-2.0

package run

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The engine is pure: what it imports is a short list, and it has neither clock nor goroutine nor channel.
func TestEngineIsPure(t *testing.T) {
	allowed := map[string]bool{
		"slices": true,
		"bytes":  true, "encoding/json": true, "fmt": true, "time": true, // time for its types only, see below
		"maps":                                  true,
		"github.com/berth-dev/berth/core/model": true,
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		looked++
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); !allowed[path] {
				t.Errorf("%s imports %s", file, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			bad := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				bad = "a goroutine"
			case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				bad = "a channel"
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name != "Time" && n.Sel.Name != "Duration" {
					bad = "time." + n.Sel.Name
				}
			case *ast.RangeStmt:
				// The order of a map would make two results out of one event. Only slices are ranged over here.
				if sel, ok := n.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Agents" {
					bad = "a range over a map"
				}
			}
			if bad != "" {
				t.Errorf("%s has %s", fset.Position(n.Pos()), bad)
			}
			return true
		})
	}
	if looked < 5 {
		t.Errorf("only %d files were looked at", looked)
	}
}
