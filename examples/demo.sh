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

# run shows a command and runs it.
run() {
	printf '$ gpustack %s\n' "$*"
	status=0
	"$gpustack" "$@" 2>&1 || status=$?
	echo
	return $status
}

"$gpustack" host unpack "$examples/ubuntu-8xa100.txtar" node 2>/dev/null
cp -a node first
run host scan --root node
run host scan --root node -o tree
run host prepare --root node --yes
run host prepare --root node

# A copy is undone: everything is as before, except for the journal.
cp -a node copy
run undo --root copy --yes
echo '$ diff -r --no-dereference first copy'
diff -r --no-dereference first copy || [ $? = 1 ]
echo

run host check --root node || [ $? = 2 ]
echo '$ examples/boot.sh node'
"$examples/boot.sh" node
echo
run host check --root node

"$gpustack" host scan --root node -o json >gpu1.json
echo '$ gpustack host scan --root node -o json >gpu1.json'
echo
run nova configure --root node --role compute --inventory gpu1.json --yes
run nova check --release 2025.1 --role compute --inventory gpu1.json --conf node/etc/nova/nova.conf
run host check --root node --all
