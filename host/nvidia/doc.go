// Package nvidia reads NVIDIA's driver as files show it ([Read]): the module that is loaded and
// those on disk, its GPUs and device nodes, and the user-space libraries. It has the table of the
// drivers that CUDA toolkits need.
//
// It loads and starts nothing of NVIDIA: its libraries and nvidia-ctk create device nodes on the
// running machine when root uses them, even where no driver is loaded.
package nvidia
