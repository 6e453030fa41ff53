// Package image judges whether an image suits guests with GPUs, plans the properties that it lacks,
// and changes them.
//
// It does not speak HTTP (nova/cloud), or print.
package image
