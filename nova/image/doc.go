// Package image judges whether an image suits guests with GPUs ([Check]), plans the properties
// that it lacks ([NewPlan]), and changes them ([Kind]).
//
// It does not speak HTTP (nova/cloud), or print.
package image
