// Package cudaparts fetches parts of NVIDIA's driver and of CUDA from Debian's non-free archive.
// Tests compare gpustack's verdicts with the real libraries. The parts are fetched when a test
// needs them, verified by apt, unpacked, and installed nowhere; the project contains none.
//
// Libraries of the driver create nodes in /dev when root initializes them, even on a machine that
// has no GPU. A program that loads one needs a /dev and a mount namespace of its own.
package cudaparts
