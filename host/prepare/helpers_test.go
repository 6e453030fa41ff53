package prepare_test

import "gpustack/host/hosttest"

type (
	node = hosttest.Server
	step = hosttest.Step
)

var (
	write = hosttest.Write
	link  = hosttest.Link
	steps = hosttest.Steps
)
