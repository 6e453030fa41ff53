package nova

import (
	"errors"

	"gpustack/host"
	"gpustack/nova/conf"
)

// OfferedAliases returns the aliases that the configuration files of the machine below root define,
// of every option name that some release reads. Files that do not exist define none.
func OfferedAliases(root host.Root) (names []Named, err error) {
	installations, err := Installations(root, All)
	errs := []error{err}
	for _, installation := range installations {
		for _, file := range installation.Files {
			text, err := root.ReadFile(file)
			if host.IsAbsent(err) {
				continue
			}
			var parsed *conf.File
			if err == nil {
				parsed, err = conf.Parse(text)
			}
			if err != nil {
				errs = append(errs, host.OfFile(file, err))
				continue
			}
			found, malformed := namesOf(conf.Source{Name: file, File: parsed}, Ocata.AliasNames())
			names, errs = append(names, found...), append(errs, malformed...)
		}
	}
	return names, errors.Join(errs...)
}
