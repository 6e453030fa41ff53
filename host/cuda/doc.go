// Package cuda knows what programs of CUDA print about GPUs: nvidia-smi, deviceQuery,
// bandwidthTest, nvbandwidth and nbody. [Programs] is where to begin. It loads no library, and
// starts no program.
package cuda
