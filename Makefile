# `.ci/setup make TARGET` installs make and Go first where they are missing.

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unreleased)
# The day of the commit, which the manual has.
DATE    ?= $(shell git log -1 --format=%cs 2>/dev/null)

# Tests and linters build packages like the binary: each is compiled once for all of them, and for all
# checkouts. A make that a test runs builds the same version. The tag omits urfave/cli's generator of
# manual pages from the binary: .ci/manual makes them of the pages of help, with the same library.
TAGS = urfave_cli_no_docs
export CGO_ENABLED = 0
export GOFLAGS := $(filter-out -trimpath -tags=$(TAGS),$(shell $(GO) env GOFLAGS 2>/dev/null)) -trimpath -tags=$(TAGS)
export VERSION DATE

# The same sources give the same bytes. The tag cudaprobe embeds that program, which is built before.
PROBE = $(GO) build -trimpath -buildvcs=false -ldflags '-s -w'
PROBES = cmd/cudaprobe/embedded/cudaprobe-
BUILD = $(GO) build -trimpath -buildvcs=false -tags $(TAGS),cudaprobe -ldflags '-s -w -X main.version=$(VERSION)'

# Every file of a release has the time of the commit.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
# Who releases, as the packages name them.
export MAINTAINER ?= $(shell git log -1 --format='%an <%ae>' 2>/dev/null)

# Debian's packages that the integration tests use. They are installed in a tree of their own
# (see .ci/inside), in which these tests run.
export TEST_PACKAGES = mount pciutils python3 python3-yaml nova-common zsh fish groff-base strace busybox-static make \
	initramfs-tools dracut-core udev systemd systemd-boot grub2-common zstd lz4 xz-utils bzip2 \
	python3-nova python3-keystone python3-placement python3-glance python3-pymysql python3-mysqldb mariadb-server-core mariadb-client-core rabbitmq-server python3-openstackclient \
	qemu-system-x86 qemu-utils mmdebstrap fdisk e2fsprogs kmod \
	lintian rpm rpmlint gpg gpg-agent qemu-user \
	iproute2 rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest infiniband-diags opensm ibsim-utils libumad2sim0 \
	podman runc conmon tcc \
	prometheus prometheus-node-exporter \
	ansible-core ansible-lint

# Which integration tests: packages, and flags of go test. Those that take longest begin first: of
# vm, which boots machines one after the other, one processor is busy all the time; db waits much.
ALL_TESTS = ./integration/vm ./integration/db ./integration/nova ./integration/...
TESTS ?= $(ALL_TESTS)
# Those that take long for what they prove: make test-full has them, make test does not. TEST, or
# TEST/SUBTEST with _ for a space. Each subject keeps a real proof in make test.
# .ci/inside makes small trees; make test makes whole ones.
LONG_TESTS = TestInside TestInsideSuite
# A binary that counts statements is built, and run on machines with 460 cards.
LONG_TESTS += TestLinear
# A run ends at each of its system calls; TestInterruptedTwice, TestInterruptedDrivers and TestRebuildKilled stay.
LONG_TESTS += TestKilled TestInterruptedAnywhere TestUndoByValueKilled
# The compressions that initramfs-tools does not have by default: the same image again.
LONG_TESTS += TestInitramfsRead/gzip TestInitramfsRead/bzip2 TestInitramfsRead/lzma TestInitramfsRead/xz TestInitramfsRead/lz4
# More images of each generator; TestInitramfs and TestDracut with systemd stay.
LONG_TESTS += TestCrashImages TestDracutSpoiled TestDracut/for_any_machine,_without_systemd
# Nova is asked about its own answers, which change with a release of Debian only.
LONG_TESTS += TestVerdicts TestSpecsAtRandom
# A service of NVIDIA's fails, hangs and is killed, a minute each; TestTopologies binds cards.
LONG_TESTS += TestDebian/vfio-pci/nvidia
# Dracut's image boots as that of initramfs-tools, and TestDracut stays. The boot that is renumbered
# shows what the one as recorded does.
LONG_TESTS += TestHook/dracut TestHook/initramfs-tools/as_recorded
# A machine for each topology, with guards of the network, of the console and of VFs. That of Intel with cards at work and their groups stays.
LONG_TESTS += TestTopologies/amd TestTopologies/no_IOMMU TestTopologies/IOMMU_off TestTopologies/conventional_bridge TestTopologies/root_complex \
	TestTopologies/no_ACS TestTopologies/switch TestTopologies/boot_VGA TestTopologies/SR-IOV
# The kernel's timeouts are waited for, and a binding is killed at random moments.
LONG_TESTS += TestTopologies/intel/a_stuck_unbind TestTopologies/intel/killed_at_any_moment
# More ways to use a disk or a network card; the first of each stay.
LONG_TESTS += TestUses/a_loop_device TestUses/an_open_disk_by_another_name TestUses/an_open_character_device_by_another_name \
	TestUses/an_open_controller
# rdma test --container with podman and a played rping; TestRDMA has a real one.
LONG_TESTS += TestContainerPing
# Two machines with RDMA, perftest between them, and ten ways in which one fails; a machine that passes stays
# in TestRDMA.
LONG_TESTS += TestRDMAPeers TestRDMA/causes
# A release is made again elsewhere, byte for byte. TestDist has all else of it, TestRelease what it refuses.
LONG_TESTS += TestDist/made_twice TestRelease/made
# Of the harness: a machine that gets little time, dies or panics.
LONG_TESTS += TestStarved TestDies TestPanics
# Ansible runs a role on eleven servers, on two controllers, and ends at each step of it.
# TestRolloutStops stays: two servers to the end, past a failure and a kill.
LONG_TESTS += TestRoleNode TestRoleController TestRoleSteps
# MariaDB, or a repair, is killed at each of many moments; TestInterruptedRepair and TestCommitUnknown stay.
LONG_TESTS += TestServerKilled TestContextKilled TestHistories/killed TestHistories/killed_offline
# Many rows and odd servers, for one statement each.
LONG_TESTS += TestManyDevices TestManyAllocations TestLargeCell TestServerVariables TestPoolsOfManyNodes
# Evacuations, resizes and migrations of a whole cloud, a minute each, whose rows package db makes.
# TestRepairOnline stays.
LONG_TESTS += TestRepairEvacuationInError TestRepairThreeTries TestRepairTakenBack TestRepairLeavesAlone TestRepairRefusesEvacuation \
	TestRepairRefusesLiveCopy TestRepairOnDestination TestRepairPlacementAnswers TestRepairWithDevicesInPlacement TestKilledInMigration
# Services start with other options; TestDevicesInPlacement stays.
LONG_TESTS += TestControllerAsksForReports TestLiveMigratable TestOneTimeUse TestConsumerType
# Snapshots of servers of each distribution with processors of Arm; those of Intel stay, and the unit
# tests of the checks and of prepare have Arm.
LONG_TESTS += TestSnapshotReplays/arm
# Of the lab: it is restored, a card is pulled, a service ends.
LONG_TESTS += TestRestore TestCards TestEnded
# Flavors again, past bad networks and by undo; TestFlavor, TestFlavorTest and TestPrivate stay.
LONG_TESTS += TestUndoFlavor TestOverBadRoads TestDoesNotGetThere

# Those of the unit tests.
# Every command with each file of a machine unreadable; TestRootNamesTheFile has each way to read
# one, and TestForbiddenFiles all files at once.
LONG_UNIT_TESTS = TestUnreadableFiles
# Every command on every shape at each width; one example and the help texts stay.
LONG_UNIT_TESTS += TestWidth/shapes TestWidth/hgx-8xa100 TestWidth/ubuntu-8xa100 TestWidth/workstation-twins
# Every command and every plan on each shape; TestShapes has the checks of each.
LONG_UNIT_TESTS += TestShapesSurvive
# Every example of nova configure with each release; those stay that changed its options.
LONG_UNIT_TESTS += TestConfigureExamples/as_before
# Thousands of hosts, of random fleets and of virtual functions, for one function each.
LONG_UNIT_TESTS += TestExplainManyHosts TestPlanHolds TestDerivedGUIDsAreUnique

# FULL=yes runs the long ones too.
LONG = $(if $(FULL),,-skip '$(call NAMES,$(LONG_TESTS))')
LONG_UNIT = $(if $(FULL),,-skip '$(call NAMES,$(LONG_UNIT_TESTS))')
# NAMES is the pattern of go test for names of tests.
NAMES = $(subst $(SPACE),|,$(foreach test,$(1),^$(subst /,$$/^,$(test))$$))
SPACE = $() $()

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Later ones depend on modules that the public module proxy does not have.
NFPM = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
NVIDIA_CTK = github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@v1.20.0

.PHONY: build demo transcripts test test-full unit integration integration-here integration-trixie suite suites hosts systems cloud machines collection chain lint schema fuzz bench install dist release clean

# The binary, its manual and its shell completion. Those two come from the binary, so a build for
# another kind of machine (GOARCH=arm64) has none.
build:
	$(PROBE) -o $(PROBES)$$($(GO) env GOARCH) ./cmd/cudaprobe && gzip -9nf $(PROBES)$$($(GO) env GOARCH)
	$(BUILD) -o build/gpustack ./cmd/gpustack
	@rm -rf $(filter-out build/gpustack,$(BUILT))
	@if build/gpustack --version >/dev/null; then \
		GOOS= GOARCH= $(GO) run ./.ci/manual build/gpustack build/man '$(DATE)' && \
		for shell in bash zsh fish; do build/gpustack completion $$shell >build/gpustack.$$shell || exit 1; done; \
	else echo "build/gpustack does not run on this machine: no manual and no completion" >&2; fi

# Prepares, checks and configures an example node in a temporary folder.
demo: build
	@examples/demo.sh build/gpustack

# Writes the transcripts of docs/tour.md and docs/talk.md.
transcripts:
	$(GO) test -count=1 ./integration -run '^Test(Tour|Talk)$$' -update

# The README's command, which continuous integration runs. Run by root, it leaves the machine as it
# was (see .ci/apart). Tests wait for machines, databases and programs: all run at the same time, and
# linters and unit tests yield to machines, which boot one after the other.
test:
	@begin=$$(date +%s); .ci/apart $(MAKE) --no-print-directory --keep-going -j 4 lint unit integration && \
		echo "lint, unit and integration tests: $$(($$(date +%s) - begin)) s"

# All tests, the long ones too, and then each of PARTS, two at a time, for many wait. A part that fails
# does not keep the others from running; each says what it took.
PARTS = chain suites fuzz hosts histories debian cloud-trixie machines-trixie collection-trixie kills cloud-forky chain-trixie
test-full:
	$(MAKE) test FULL=yes
	$(MAKE) --no-print-directory --keep-going -j 2 $(PARTS:%=part-%)

part-%:
	@begin=$$(date +%s); \
	if $(MAKE) --no-print-directory run-$*; then verdict=ok; else verdict=FAIL; fi; \
	echo "test-full: $*: $$verdict, $$(($$(date +%s) - begin)) s"; [ $$verdict = ok ]

# Random cases are others each time. What is emulated has its disks in TMPDIR, and not in memory.
DISKS = TMPDIR=$${TMPDIR:-/tmp}
run-kills:
	.ci/inside .ci/gotest -count=1 ./integration/db -run '^TestServerKilled$$' -kills 200
run-histories:
	.ci/inside .ci/gotest -count=1 -timeout 2h ./integration/db -run '^TestHistories$$' -histories 2000 -history-seed 0
run-hosts:
	.ci/inside .ci/gotest -count=1 -timeout 2h ./integration -run '^TestExplainHost$$' $(HOSTS)
run-debian:
	$(DISKS) .ci/inside .ci/gotest -count=1 -timeout 2h ./integration/vm -run '^TestDebian$$' -full
run-chain:
	$(DISKS) .ci/inside .ci/gotest -count=1 -timeout 4h -v ./integration/chain -full
run-suites:
	$(MAKE) suites
run-cloud-trixie:
	$(MAKE) cloud SUITE=trixie
run-cloud-forky:
	$(MAKE) cloud SUITE=forky CLOUD_TESTS='^TestOneTimeUse$$' GLANCE=
run-collection-trixie:
	$(MAKE) collection SUITE=trixie
run-machines-trixie:
	$(MAKE) machines SUITE=trixie
run-chain-trixie:
	$(MAKE) chain SUITE=trixie
run-fuzz:
	.ci/inside $(MAKE) fuzz

# Not cached: for a test that lays trees, go test takes as long to look at each file again as the test.
# More tests at a time than processors, for some wait. They yield to machines, which can take most of
# the time of a whole run: the limits are for tests that hang.
unit:
	GO=$(GO) nice -n 5 .ci/gotest -count=1 -timeout 80m -exec '$(CURDIR)/.ci/beside' -parallel "$$(($$(nproc) * 4))" $(LONG_UNIT) $$($(GO) list ./... ./.ci/dist ./.ci/manual | grep -v /integration)

# The tree is made before that of another release is, for they are made one after the other.
ALL = $(if $(subst $(ALL_TESTS),,$(TESTS)),,yes)
integration: build build/tools/nfpm build/tools/nvidia-ctk
	@[ -z '$(ALL)' ] || .ci/inside true || :
	@$(MAKE) --no-print-directory --keep-going integration-here $(if $(ALL),integration-trixie)

integration-here:
	@.ci/inside .ci/gotest -p "$$(($$(nproc) + 2))" -count=1 -timeout $(if $(FULL),4h,80m) $(if $(ALL),$(LONG)) $(TESTS)

integration-trixie:
	@$(MAKE) --no-print-directory --keep-going suite hosts SUITE=trixie NOVA_TESTS='$(SHORT_NOVA_TESTS)' HOSTS='-host-cases 500'

# Tests of repairs whose judge is Nova: its schema, its tracker and a Placement. They run once more
# with the Nova of Debian SUITE, in a tree of that release.
NOVA_TESTS = .
SHORT_NOVA_TESTS = ^Test(Schema|Track|FreedWithIsNova|ComputeID.*|Claim|OrdinaryRows|Repair|RepairUndo|Renamed|Allocations|Books|Evacuat.*|.*TLS|URL.*|OptionFile.*)$$
SUITE_PACKAGES = mount python3 python3-yaml nova-common python3-nova python3-placement python3-pymysql python3-mysqldb \
	mariadb-server-core mariadb-client-core
suite hosts: export TEST_PACKAGES = $(SUITE_PACKAGES)
suite:
	@SUITE=$(SUITE) .ci/inside .ci/gotest -count=1 -timeout 1h ./integration/db -run '$(NOVA_TESTS)'

# The same and hosts, with each of SUITES. A release that cannot be fetched, or whose tests fail, is
# named at the end and does not keep the others from running.
SUITES = trixie forky
suites:
	@failed=; for suite in $(SUITES); do $(MAKE) --no-print-directory --keep-going suite hosts SUITE=$$suite || failed="$$failed $$suite"; done; \
	[ -z "$$failed" ] || { echo "suites: FAIL:$$failed" >&2; exit 1; }

# Writes into integration/ran/README.md what the last runs on this machine have noted: which tests
# passed, in which release, with which versions.
systems:
	$(GO) test -count=1 -run '^TestTable$$' ./integration/ran -update

# What nova explain says of random hosts, judged by the Nova of Debian SUITE.
HOSTS = -host-cases 30000 -host-seed 0
hosts:
	@SUITE=$(SUITE) .ci/inside .ci/gotest -count=1 -timeout 2h ./integration -run '^TestExplainHost$$' $(HOSTS)

# The control plane of Debian SUITE, in a tree of that release: the tests of integration/nova.
CLOUD_TESTS = .
# Debian's testing has none for a time.
GLANCE = python3-glance
CLOUD_PACKAGES = mount make python3 python3-yaml nova-common python3-nova python3-keystone python3-placement $(GLANCE) python3-pymysql \
	python3-openstackclient mariadb-server-core mariadb-client-core rabbitmq-server
cloud: export TEST_PACKAGES = $(CLOUD_PACKAGES)
cloud:
	SUITE=$(SUITE) .ci/inside .ci/gotest -count=1 -timeout 2h ./integration/nova -run '$(CLOUD_TESTS)'

# The collection with the Ansible of Debian SUITE, in a tree of that release: of trixie, ansible-core 2.19.
collection: export TEST_PACKAGES = mount python3 python3-yaml sudo ansible-core ansible-lint
collection:
	@SUITE=$(SUITE) .ci/inside .ci/gotest -count=1 -timeout 2h ./integration/ansible

# Machines of Debian SUITE: its kernel, GRUB, systemd and generators of the initramfs. The QEMU that
# they run in is bookworm's (integration/vm, qemu.go).
MACHINE_PACKAGES = $(CLOUD_PACKAGES) mmdebstrap qemu-utils fdisk e2fsprogs kmod zstd xz-utils lz4 busybox-static grub-common pciutils udev iproute2 ansible-core
machines chain: export TEST_PACKAGES = $(MACHINE_PACKAGES)
machines:
	SUITE=$(SUITE) $(DISKS) .ci/inside go test -count=1 -timeout 3h ./integration/vm -run '^TestDebian$$'

# The whole way with Debian SUITE: compute nodes of that release, with its kernel, libvirt, QEMU and
# nova-compute, and its control plane, with its Ansible for the waves of TestWaves.
chain:
	SUITE=$(SUITE) $(DISKS) .ci/inside go test -count=1 -timeout 3h -v ./integration/chain -full

lint: build/tools/golangci-lint
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted" >&2; exit 1; }
	$(GO) mod tidy -diff
	nice -n 5 build/tools/golangci-lint run ./... ./.ci/dist ./.ci/manual

build/tools/golangci-lint: Makefile
	GOBIN=$(CURDIR)/build/tools $(GO) install $(GOLANGCI_LINT)
	@touch $@

build/tools/nfpm: Makefile
	GOBIN=$(CURDIR)/build/tools $(GO) install $(NFPM)
	@touch $@

# NVIDIA's generator of CDI specs, with which a test compares ours, calls NVIDIA's libraries through
# C. Its warnings are those of NVIDIA's header.
build/tools/nvidia-ctk: Makefile
	@command -v gcc >/dev/null || .ci/packages gcc libc6-dev
	CGO_ENABLED=1 CGO_CFLAGS=-Wno-deprecated-declarations GOBIN=$(CURDIR)/build/tools $(GO) install $(NVIDIA_CTK)
	@touch $@

# Writes docs/schema and docs/json.md anew, from the types of the documents and the comments of
# their fields.
schema:
	-$(GO) test -count=1 -run '^(TestSchemas|TestJSONDoc)$$' ./cmd/gpustack -update >/dev/null
	$(GO) test -count=1 -run '^(TestSchemas|TestJSONDoc)$$' ./cmd/gpustack

# Runs each fuzz target for FUZZTIME. One that fails does not keep the others from running.
FUZZTIME ?= 20s
fuzz:
	@set -e; failed=; for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$package || failed="$$failed $$target"; \
		done; \
	done; \
	[ -z "$$failed" ] || { echo "fuzz: FAIL:$$failed" >&2; exit 1; }

# Prints figures side by side. No test depends on them.
bench: TEST_PACKAGES += ansible crudini gcc libc6-dev
bench: build
	.ci/inside go test -run '^$$' -bench . -count=1 ./host/... ./integration/...

# Copies what make build has made, and the documentation: root needs no Go for it.
BUILT = build/gpustack build/man build/gpustack.bash build/gpustack.zsh build/gpustack.fish
SHARE = $(DESTDIR)$(PREFIX)/share
DOCS  = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE integration/chain/README.md integration/ran/README.md $(wildcard docs/*.md docs/schema/*.json examples/*.txtar examples/*.conf examples/*.sql examples/monitoring/*.*)
install: $(BUILT)
	install -D -m 0755 build/gpustack $(DESTDIR)$(PREFIX)/sbin/gpustack
	install -D -m 0644 -t $(SHARE)/man/man8 build/man/*.8
	install -D -m 0644 build/gpustack.bash $(SHARE)/bash-completion/completions/gpustack
	install -D -m 0644 build/gpustack.zsh $(SHARE)/zsh/site-functions/_gpustack
	install -D -m 0644 build/gpustack.fish $(SHARE)/fish/vendor_completions.d/gpustack.fish
	for file in $(DOCS); do install -D -m 0644 "$$file" "$(SHARE)/doc/gpustack-nova/$$file" || exit 1; done
	install -D -m 0755 -t $(SHARE)/doc/gpustack-nova/examples examples/*.sh
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system examples/monitoring/systemd/*

$(BUILT):
	@echo "$@ is missing: run make build first, as a user who has Go" >&2; exit 1

# Files of a release, in build/dist: archives, packages, bills of materials, Ansible's collection and
# their checksums, which SIGN=KEY signs with that key of gpg.
DIST = build/dist
dist: build build/tools/nfpm
	rm -rf $(DIST) build/stage
	mkdir -p $(DIST)
	for arch in amd64 arm64; do \
		GOARCH=$$arch $(PROBE) -o $(PROBES)$$arch ./cmd/cudaprobe && gzip -9nf $(PROBES)$$arch && GOARCH=$$arch $(BUILD) -o build/stage/$$arch/gpustack ./cmd/gpustack || exit 1; \
	done
	$(MAKE) --no-print-directory install DESTDIR=build/stage/installed PREFIX=/usr
	$(GO) run ./.ci/dist -version '$(VERSION)' -maintainer '$(MAINTAINER)' -installed build/stage/installed \
		-nfpm build/tools/nfpm -config .ci/dist/nfpm.yaml -collection ansible -out $(DIST) build/stage/amd64/gpustack build/stage/arm64/gpustack
	rm -rf build/stage
	$(if $(SIGN),gpg --armor --local-user '$(SIGN)' --detach-sign $(DIST)/SHA256SUMS)

# The files of release VERSION, from its tag, and what to publish.
release:
	@GO='$(GO)' SIGN='$(SIGN)' .ci/release '$(VERSION)'

clean:
	rm -rf build $(PROBES)*
