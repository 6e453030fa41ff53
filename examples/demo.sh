#!/bin/sh
# demo.sh GPUSTACK: prepares, boots, checks and configures an example node in a temporary folder. It
# needs no privileges and removes the folder at the end. docs/tour.md shows what it prints.
set -eu

gpustack=$(realpath "$1")
examples=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 129' HUP # dash runs the trap of EXIT only if the shell exits
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$dir"
LC_ALL=C.UTF-8
export LC_ALL

# say prints what follows.
say() {
	printf '# %s\n' "$*"
}
# show shows a command and runs it.
show() {
	printf '$ %s\n' "$*"
	status=0
	"$@" 2>&1 || status=$?
	echo
	return $status
}
# run shows and runs a command of gpustack.
run() { show gpustack "$@"; }
gpustack() { "$gpustack" "$@"; }

ln -s "$examples" examples
say "Eight A100 in a server with Ubuntu 24.04 and Nova 2025.1, as a file tree in the folder node:"
run host unpack examples/ubuntu-8xa100.txtar node
run host scan --root node
say "On a server, prepare asks before it changes a file. --yes is the answer here:"
run host prepare --root node --yes
say "Every change can be undone. On a copy of the node, only the journal is left:"
show cp -a node copy
run undo --root copy --yes
run host unpack examples/ubuntu-8xa100.txtar first
show diff -r --no-dereference first copy || [ $? = 1 ]

say "A file tree cannot regenerate its initramfs and boot menu. host check fails until that is done:"
run host check --root node || [ $? = 2 ]
say "A script does that to the file tree, and what a reboot does:"
show examples/boot.sh node
run host check --root node
say "The GPUs that are prepared are offered to Nova:"
run nova configure --root node --role compute --yes
run nova check --root node
say "The node is ready. host check lists what needs attention, and with --all every check:"
run host check --root node
say "docs/tour.md explains each step. On a server with GPUs, begin with: gpustack host scan"
