// Package explain judges which hosts of a cloud can build a guest of a flavor, and finds for each
// of the others the first thing that Nova rejects it for: "No valid host was found" does not say.
//
// [Facts] asks the cloud; [Judge] takes values and returns values. It does not read files (nova) or
// databases (cleanup/find).
package explain
