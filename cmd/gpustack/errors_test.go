package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
)

// withoutHint are the errors that have no hint, each with the reason. Names are those of the
// package below the module, and of the variable or type.
var withoutHint = map[string]string{
	"host.errNoFlags":               "a finding of host check shows it, and has a remedy of its own",
	"host.FileError":                "the text names the file and the cause; callers add a hint where they know one",
	"host.ErrNotNode":               "a finding names the file and what belongs in its place",
	"host.ErrStopped":               "the operator stopped the program that the text names",
	"host.ProgramError":             "the last line of the program says what to do; what runs it adds a hint where it knows one",
	"nova/cloud.errMalformed":       "the text names the file",
	"nova/cloud.errTooLarge":        "the text names the file",
	"nova/cloud.ErrUnknownName":     "nova explain judges the name of a resource class or trait by it",
	"host/change.ErrUnfinished":     "it goes with the error that prevents the recovery, which has the hint",
	"host/change.ErrNothing":        "it is the answer to undo where there is nothing to do",
	"host/document.errTooLarge":     "the text names the file",
	"host/edit.errNotRegular":       "the text names the file, which the operator has to look at",
	"host/prepare.errPutBack":       "it goes with the error of a program, which has the hint",
	"host/bind.errNeeded":           "views/refusals.go adds the command that binds the function all the same",
	"host/machine.ErrNoInitramfs":   "a finding of host check shows it",
	"host/selection.ErrChanged":     "Refused has the commands that are accepted instead",
	"host/selection.ErrNoIDs":       "Refused has the commands that are accepted instead",
	"host/selection.ErrNotSelected": "views/refusals.go adds the command that shows the selection",
	"host/selection.ErrNothing":     "Refused has the commands that are accepted instead",
	"host/selection.ErrStubTwins":   "Refused has the commands that are accepted instead",
	"host/gate.ErrSRIOV":            "the scan's warning has the cause",
	"host/gate.ErrSwitches":         "Refused has the commands that are accepted instead",
	"host/gate.Refusal":             "Refused has the commands that are accepted instead",
	"host/selection.Refused":        "its Ways are the hints: views/refusals.go prints them as commands",
	"host/gate.Separation":          "Refused has the commands that are accepted instead",
	"host/selection.errBridge":      "the text says why the device cannot be chosen",
	"nova/cloud.ErrConflict":        "the text has the message of the service, which names the object",
	"nova/cloud.ErrNotFound":        "the text has the message of the service, which names the object",
	"cleanup.errStats":              "the finding of the pool has its steps",
	"cleanup/repair.errChanged":     "the unit is skipped with it as its note; the rows are judged again",
	"cleanup/repair.errHeld":        "the transaction is tried again",
	"cleanup/repair.errNeither":     "the text has the allocations as they are now",
	"cleanup/repair.errNotPosted":   "it goes with the answer of Placement",
	"cleanup/repair.errStays":       "it rolls back a transaction, and is not returned",
	"host.errLeaves":                "the caller opens the file in another way",
	"host.errNotRegular":            "the text names the file, which the operator has to look at",
	"host.errTooLong":               "the text names the file, which the operator has to look at",
	"host.errTruncated":             "a finding of host check shows it, and has a remedy of its own",
	"host/gate.errVF":               "Refused has the commands that are accepted instead",
	"host/gate.errVPDUnread":        "Refused has the commands that are accepted instead",
	"host/hardware.errLeaves":       "the scan's warning names the file",
	"host/hardware.errNoFile":       "the scan's warning names the file",
	"host/hardware.errTooLong":      "the scan's warning names the file",
	"host/iommu.errNoDMAR":          "the scan's warning names the file",
	"host/machine.errNoEntries":     "a finding of host check shows it",
	"host/machine.errNotRunning":    "the reason of what is n/a in a tree",
	"host/memlock.errLimit":         "the text names the file and the value",
	"host/nvidia.errNotCharacter":   "the finding of the node has a remedy of its own",
	"host/nvidia.errVersionFile":    "the finding of the driver has a remedy of its own",
	"host/rdma/perf.ErrCut":         "the cause of the test has the command that shows the output",
	"host/rdma/perf.ErrMalformed":   "the cause of the test has the command that shows the output",
	"host/rdma/perf.ErrNoReport":    "the cause of the test has the command that shows the output",
	"host/pci.errVPD":               "the refusal that needs the data has the commands that are accepted instead",
	"host/rdma.errNotNode":          "the finding of the node has a remedy of its own",
	"nova.errReference":             "the text names the option, whose value the operator has to write",
	"nova/image.errNotAsked":        "the reason of what is n/a",
	"nova/servertest.errLate":       "the text of the left servers has the commands that delete them",
	"nova/servertest.errSilent":     "the verdict of the server has the cause",
	"nova/fit.Rejection":            "a link of nova explain shows it, with a remedy",
	"nova/conf.SyntaxError":         "the text has the line and what is wrong with it",
}

// TestErrorsHaveHints: every error variable (ErrX, errX) and every exported error type of the
// module carries a hint: the variable is made by host.WithHint, the type has a method Hint. Errors
// whose text says all are listed in withoutHint.
func TestErrorsHaveHints(t *testing.T) {
	known := moduleErrors(t, "../..")
	if len(known) < 50 {
		t.Errorf("%d errors found", len(known))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		reason, listed := withoutHint[name]
		switch e := known[name]; {
		case !e.hinted && !listed:
			t.Errorf("%s: %s has no hint: make it with host.WithHint, give its type a method Hint, or list it in withoutHint", e.position, name)
		case e.hinted && listed:
			t.Errorf("%s: %s has a hint, and is listed in withoutHint", e.position, name)
		case listed && reason == "":
			t.Errorf("%s: no reason is listed for %s", e.position, name)
		}
	}
	for name := range withoutHint {
		if _, ok := known[name]; !ok {
			t.Errorf("%s is listed in withoutHint, and is no error", name)
		}
	}
}

// errorName matches the name of an error variable.
var errorName = host.LazyRegexp(`^[eE]rr[A-Z]`)

// A moduleError is an error variable or type.
type moduleError struct {
	position token.Position
	hinted   bool
	alias    string // the variable of another package that it is
}

// moduleErrors returns the error variables and exported error types of a module by name, without
// those of commands and tests. A type is an error if it has a method Error, or embeds error.
func moduleErrors(t *testing.T, root string) map[string]moduleError {
	t.Helper()
	positions := token.NewFileSet()
	found := map[string]moduleError{}
	hints := map[string]bool{}           // types that have a method Hint
	types := map[string]token.Position{} // of all exported types
	errorTypes := map[string]bool{}      // of those with a method Error
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"integration", "build", "testdata"}, d.Name()) || name != "." && d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		syntax, err := parser.ParseFile(positions, file, nil, parser.SkipObjectResolution)
		if err != nil || syntax.Name.Name == "main" {
			return err
		}
		at := func(node ast.Node) token.Position {
			p := positions.Position(node.Pos())
			p.Filename = name
			return p
		}
		in := path.Dir(filepath.ToSlash(name)) + "."
		for _, declaration := range syntax.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				receiver := receiverType(declaration)
				if !ast.IsExported(receiver) {
					continue
				}
				errorTypes[in+receiver] = errorTypes[in+receiver] || declaration.Name.Name == "Error"
				hints[in+receiver] = hints[in+receiver] || declaration.Name.Name == "Hint"
			case *ast.GenDecl:
				for _, spec := range declaration.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						types[in+spec.Name.Name] = at(spec)
						if embedsError(spec.Type) {
							errorTypes[in+spec.Name.Name] = true
						}
					case *ast.ValueSpec:
						for i, variable := range spec.Names {
							if declaration.Tok == token.VAR && errorName().MatchString(variable.Name) {
								e := moduleError{position: at(variable)}
								if i < len(spec.Values) {
									e.hinted, e.alias = isWithHint(spec.Values[i]), aliased(syntax, spec.Values[i])
								}
								found[in+variable.Name] = e
							}
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, isError := range errorTypes {
		if position, ok := types[name]; ok && isError {
			found[name] = moduleError{position: position, hinted: hints[name]}
		}
	}
	for name, e := range found {
		if e.alias != "" {
			e.hinted = found[e.alias].hinted
			found[name] = e
		}
	}
	return found
}

// receiverType returns the name of a method's type, "" for a function.
func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return "" // a generic type
}

// embedsError reports whether a type is a struct that embeds error.
func embedsError(t ast.Expr) bool {
	s, ok := t.(*ast.StructType)
	return ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		name, ok := f.Type.(*ast.Ident)
		return ok && len(f.Names) == 0 && name.Name == "error"
	})
}

// aliased returns the variable of another package of the module that an expression is, "" for
// another expression.
func aliased(file *ast.File, e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	name, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, spec := range file.Imports {
		in, found := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "gpustack/")
		if found && path.Base(in) == name.Name {
			return in + "." + selector.Sel.Name
		}
	}
	return ""
}

// isWithHint reports whether an expression is a call of host.WithHint.
func isWithHint(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "WithHint"
	case *ast.SelectorExpr:
		return f.Sel.Name == "WithHint"
	}
	return false
}
