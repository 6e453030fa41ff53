package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manyMethods are the types with more than 15 methods. Most read or judge one subject by a method
// for each file, check or step of Nova; none is of cmd or operate.
func manyMethods() map[string]bool {
	many := map[string]bool{}
	for name := range strings.FieldsSeq(`
		cleanup.classifier cleanup/find.reader cleanup/repair.Repairer
		host.Root host/check.view host/container/containercheck.view host/driver.Binder host/gate.Host
		host/guard.guard host/guest.Report host/guest.observer host/hardware.probe host/machine.observer
		host/netconf.reader host/nvidia.reader host/pci.Device host/prepare.node
		host/rdma/rdmacheck.view host/rdma/rdmaprepare.Machine host/rdma/rdmaprepare.ownerReader
		host/rdma/rdmaprepare.wanting host/selection.Node host/snapshot.Tree
		nova.planner nova/cloud.Compute nova/conf.File nova/explain.Facts nova/explain.aliases nova/explain.judge nova/fit.Guest nova/novacheck.checker`) {
		many[name] = true
	}
	return many
}

// TestMethods: no type has more than 15 methods, apart from manyMethods and types for tests.
func TestMethods(t *testing.T) {
	const most = 15
	methods, many := methodsByType(t), manyMethods()
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if own := methods[name]; len(own) > most && !many[name] {
			t.Errorf("%s has %d methods, more than %d: %s", name, len(own), most, strings.Join(own, ", "))
		}
	}
	for name := range many {
		if len(methods[name]) <= most {
			t.Errorf("%s has %d methods: remove it from the list of those with more", name, len(methods[name]))
		}
	}
}

// methodsByType returns the methods of each type, by folder and name.
func methodsByType(t *testing.T) map[string][]string {
	t.Helper()
	methods := map[string][]string{}
	eachFile(t, func(path string) {
		folder := strings.TrimPrefix(filepath.Dir(path), top+"/")
		if isForTests(folder) || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				name := folder + "." + receiver(f.Recv.List[0].Type)
				methods[name] = append(methods[name], f.Name.Name)
			}
		}
	})
	return methods
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // of a generic type
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
