package args

import "gpustack/host/change"

// This file has the texts of the manual that no command has: help.go and man.go format them.

// manualDescription is the DESCRIPTION of gpustack(8).
const manualDescription = `
gpustack turns GPU servers into OpenStack Nova compute nodes whose guests get whole GPUs by PCI
passthrough, and back: it prepares the machine for VFIO, configures Nova, creates flavors, and
repairs PCI device records in Nova's database.

Every command that changes something first prints its plan: a line for each new or removed file
and a diff for each changed one (--diff: for all), statements and values for database rows,
requests for APIs. It asks before it applies the plan; without a terminal it requires --yes.
--dry-run stops after the plan. Every change is recorded, verified and can be undone; a run that
finds nothing to change says so.

Data is printed to standard output, messages to standard error. With -o json or -o yaml, each
run prints one document, for refusals and errors too. docs/json.md describes the documents, and
docs/schema has a JSON Schema for each.

A typical order of tasks: host scan and host prepare on a compute node, a reboot, host check;
nova configure on controllers and compute nodes, nova check; flavor create. repair-migration
is for stale device records after a failed migration.
`

// Term is a line of a list of the manual: a word with its explanation.
type Term struct{ Name, Text string }

// manualFiles are the FILES of gpustack(8): what gpustack writes, and what it reads that is its own
// or the user's. Files of the machine are below --root.
var manualFiles = []Term{
	{change.Dir + "/contract.json", "what host prepare has recorded: the selected functions, kernel arguments and files, which host check compares with the machine"},
	{change.Dir + "/journal/", "the entries of history and undo: one for each change, readable by root only"},
	{"${XDG_STATE_HOME:-~/.local/state}/gpustack/journal/", "entries of changes of flavors by users other than root"},
	{"/etc/default/grub.d/zz-gpustack.cfg", "kernel arguments for GRUB, where it reads this folder; otherwise lines at the end of /etc/default/grub"},
	{"/boot/loader/entries/*.conf, /boot/grub2/grubenv, /etc/kernel/cmdline", "kernel arguments for boot entries (GRUB on Red Hat's distributions, systemd-boot)"},
	{"/etc/modprobe.d/zz-gpustack.conf, /etc/modules-load.d/gpustack.conf", "modules to load, to prefer and to keep from loading"},
	{"/etc/initramfs-tools/hooks/gpustack, /etc/initramfs-tools/scripts/init-top/gpustack", "binding before udev starts, for initramfs-tools"},
	{"/usr/lib/dracut/modules.d/99gpustack/, /etc/dracut.conf.d/zz-gpustack.conf", "binding before udev starts, for dracut"},
	{"/etc/systemd/system/gpustack-boot.service, /etc/systemd/system/multi-user.target.d/gpustack-boot.conf",
		"the unit that carries out the steps of each boot: functions that --allow names, VFs of adapters, CDI specs of containers"},
	{"/etc/nova/nova.conf, /etc/nova/nova.conf.d/", "Nova's configuration, which nova configure edits in place"},
	{"clouds.yaml, secure.yaml, clouds-public.yaml", "credentials of clouds and their profiles: in the working directory, in ~/.config/openstack or in /etc/openstack"},
}

// ManualEnvironment are the environment variables that gpustack reads.
var ManualEnvironment = []Term{
	{"OS_CLOUD", "the cloud of clouds.yaml to use; --os-cloud overrides it"},
	{"OS_CLIENT_CONFIG_FILE, OS_CLIENT_SECURE_FILE", "clouds.yaml and secure.yaml, instead of those of the usual folders"},
	{"OS_AUTH_URL, OS_AUTH_TYPE, OS_USERNAME, OS_USER_ID, OS_USERID, OS_PASSWORD, OS_PROJECT_NAME, OS_PROJECT_ID, OS_TENANT_NAME, OS_TENANT_ID, " +
		"OS_USER_DOMAIN_NAME, OS_USER_DOMAIN_ID, OS_PROJECT_DOMAIN_NAME, OS_PROJECT_DOMAIN_ID, OS_DOMAIN_NAME, OS_DOMAIN_ID, OS_DEFAULT_DOMAIN, " +
		"OS_DEFAULT_DOMAIN_ID, OS_DEFAULT_DOMAIN_NAME, OS_SYSTEM_SCOPE, OS_TRUST_ID", "credentials, as in an openrc file, without OS_CLOUD"},
	{"OS_TOKEN, OS_AUTH_TOKEN, OS_APPLICATION_CREDENTIAL_ID, OS_APPLICATION_CREDENTIAL_NAME, OS_APPLICATION_CREDENTIAL_SECRET",
		"a token, or an application credential, instead of user and password"},
	{"OS_REGION_NAME, OS_INTERFACE, OS_ENDPOINT_TYPE", "the region and the interface of the endpoints"},
	{"OS_CACERT, OS_CERT, OS_KEY, OS_INSECURE", "certificates of the cloud, as in an openrc file; OS_INSECURE=true skips their verification"},
	{"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "proxies for requests to a cloud"},
	{"XDG_STATE_HOME, XDG_CONFIG_HOME, XDG_CONFIG_DIRS, HOME", "folders of the user: for the journal of users other than root, and for clouds.yaml"},
	{"SUDO_USER", "the user that the journal records; without it, the user who has logged in"},
	{"SSH_CONNECTION", "the ssh session, whose network adapter the refusal of host prepare and host bind names"},
	{"COLUMNS", "the width of text, in characters: of a terminal instead of its own, and of pipes and files, where lines otherwise have any length"},
	{"NO_COLOR", "if set, nothing is coloured"},
	{"TERM", "with dumb, nothing is coloured"},
	{"LC_ALL, LC_CTYPE, LANG", "the first one that is set selects UTF-8 or ASCII for lines in tables and trees"},
}

// manualExit are the exit statuses of all commands. Those of each command are in its own help.
var manualExit = []Term{
	{"0", "done, or nothing to do"},
	{"1", "error or refusal; nothing was changed unless the message says so"},
	{"2", "differences: --dry-run with a pending change, a check that failed, or repair-migration with rows that are not all right"},
	{"130", "interrupted: the message says what was kept and what was rolled back"},
}
