// Package edit changes a machine's files. A change is planned as a value ([Put]), shown as a diff,
// and applied atomically ([Changes.Apply]): at any moment a file has either its old or its new
// content.
//
// It does not decide what a file should contain (the packages of its grammar) or record changes
// (host/journal).
package edit
