package devspec

import (
	"fmt"
	"slices"

	"gpustack/nova/conf"
)

// Line is one value of device_spec in a file. It is one spec or a list of specs.
type Line struct {
	File   string
	Option conf.Option
	First  int // the number of its first spec among all specs, from 1
	Specs  []Spec
	Faults []error // each makes nova-compute refuse to start
	IsJSON bool    // false: the value is neither a JSON object nor a list of them
}

// Lines returns the values of device_spec in the order in which Nova reads them: file by file,
// and within a file the values of the oldest name first, wherever they stand (oslo.config,
// cfg.py, _Namespace._get_file_value). names are those of the option, the current name first.
func Lines(files []conf.Source, names []conf.Name) []Line {
	var lines []Line
	n := 1
	for _, f := range files {
		for _, name := range slices.Backward(names) {
			for _, o := range f.File.Find(name) {
				objects := conf.ParseObjects(o.Value)
				line := Line{File: f.Name, Option: o, First: n, IsJSON: objects != nil}
				for _, object := range objects {
					spec, faults := Parse(object)
					line.Specs = append(line.Specs, spec)
					line.Faults = append(line.Faults, faults...)
				}
				n += len(objects)
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// Where returns the file and the line of the value, as FILE:LINE.
func (l Line) Where() string {
	return fmt.Sprintf("%s:%d", l.File, l.Option.Line())
}
