// Package boot parses kernel arguments, reads where each boot loader stores them, and plans
// changes. [ReadGrub], [ReadBLS] and [ReadSystemdBoot] return the loaders, which have the same
// methods.
//
// It does not write files (host/edit) or run the programs that regenerate boot menus
// (host/prepare).
package boot
