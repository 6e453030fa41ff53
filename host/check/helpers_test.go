package check_test

import "gpustack/host/hosttest"

type step = hosttest.Step

const (
	kernel     = hosttest.Kernel
	newer      = hosttest.Newer
	dmarFile   = hosttest.DMARFile
	unsafeFile = hosttest.UnsafeFile
	ours       = hosttest.Ours
)

var (
	write    = hosttest.Write
	remove   = hosttest.Remove
	link     = hosttest.Link
	replace  = hosttest.Replace
	steps    = hosttest.Steps
	function = hosttest.Function
	heldBy   = hosttest.HeldBy
	group    = hosttest.Group
	each     = hosttest.Each
	bare     = hosttest.Bare
	dmar     = hosttest.DMAR
)
