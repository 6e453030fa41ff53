#!/bin/sh
# demo.sh GPUSTACK: prepares, checks and configures an example node in a temporary
# folder, and undoes it. It needs no privileges and removes the folder at the end.
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

# run shows a command and runs it.
run() {
	printf '$ gpustack %s\n' "$*"
	status=0
	"$gpustack" "$@" 2>&1 || status=$?
	echo
	return $status
}

"$gpustack" host unpack "$examples/talk-2xk4200.txtar" node 2>/dev/null
run host scan --root node
run host scan --root node -o tree
cp -a node first
run host prepare --root node --yes
run host prepare --root node
run host check --root node || [ $? = 2 ]
run nova configure --root node --role all --alias K4200=10de:11b4 --yes
run undo --root node --yes
run undo --root node --yes
# Everything is as before, except for the journal.
echo '$ diff -r --no-dereference first node'
diff -r --no-dereference first node || [ $? = 1 ]
