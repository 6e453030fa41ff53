package args

import "gpustack/host/change"

// manualExit are the exit statuses of commands whose page has no others.
const manualExit = `EXIT STATUS
  0    done, or nothing to do
  1    error or refusal, or not enough to reach a verdict; nothing was changed unless the message says so
  2    differences: --dry-run with a pending change, a check or test that failed, rows that are not all right
  130  interrupted: the message says what was kept and what was rolled back
`

// manual is the part of the page of gpustack that no command has.
const manual = `DESCRIPTION
gpustack turns GPU servers into OpenStack Nova compute nodes whose guests get whole GPUs by PCI
passthrough, and back. Every command that changes something first prints its plan, and asks before
it applies it; without a terminal it requires --yes. --dry-run stops after the plan. Every change is
recorded, verified and can be undone; a run that finds nothing to change says so.

Data is printed to standard output, messages to standard error. With -o json or -o yaml, each
run prints one document, for refusals and errors too. docs/json.md describes the documents.

A file of the machine, such as that of --conf, is an absolute path below --root: with --root
/mnt/node, --conf /etc/nova/nova.conf is /mnt/node/etc/nova/nova.conf. A relative path names a copy
in the working directory, where one is accepted. Documents, such as inventories, are ordinary paths;
of a folder every file is read that ends in .json, .jsonl, .yaml or .yml, and - is standard input.

` + manualExit + `
FILES
  ` + change.Dir + `/contract.json  what host prepare has recorded, which host check compares with the machine
  ` + change.Dir + `/journal/  the entries of history and undo, readable by root only
  ${XDG_STATE_HOME:-~/.local/state}/gpustack/journal/  entries of changes of flavors by users other than root
  /etc/default/grub.d/zz-gpustack.cfg  kernel arguments for GRUB; otherwise lines in /etc/default/grub
  /boot/loader/entries/*.conf, /boot/grub2/grubenv, /etc/kernel/cmdline  kernel arguments for boot entries
  /etc/modprobe.d/zz-gpustack.conf, /etc/modules-load.d/gpustack.conf  modules to load, to prefer and to keep from loading
  /etc/initramfs-tools/hooks/gpustack, /etc/initramfs-tools/scripts/init-top/gpustack  binding before udev starts
  /usr/lib/dracut/modules.d/99gpustack/, /etc/dracut.conf.d/zz-gpustack.conf  the same for dracut
  /etc/systemd/system/gpustack-boot.service, /etc/systemd/system/multi-user.target.d/gpustack-boot.conf  the steps of each boot
  /etc/nova/nova.conf, /etc/nova/nova.conf.d/  Nova's configuration, which nova configure edits in place
  clouds.yaml, secure.yaml, clouds-public.yaml  credentials of clouds, in the working directory, ~/.config/openstack or /etc/openstack

ENVIRONMENT
  OS_CLOUD  the cloud of clouds.yaml to use; --os-cloud overrides it
  OS_CLIENT_CONFIG_FILE, OS_CLIENT_SECURE_FILE  clouds.yaml and secure.yaml, instead of those of the usual folders
  OS_AUTH_URL and the other OS_ variables of an openrc file  credentials, without OS_CLOUD
  OS_REGION_NAME, OS_INTERFACE, OS_ENDPOINT_TYPE  the region and the interface of the endpoints
  OS_CACERT, OS_CERT, OS_KEY, OS_INSECURE  certificates of the cloud; OS_INSECURE=true skips their verification
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY  proxies for requests to a cloud
  XDG_STATE_HOME, XDG_CONFIG_HOME, XDG_CONFIG_DIRS, HOME  folders of the user's journal and clouds.yaml
  SUDO_USER  the user that the journal records; without it, the user who has logged in
  COLUMNS  the width of text: of a terminal instead of its own, and of pipes and files
  NO_COLOR, TERM=dumb  nothing is coloured
  LC_ALL, LC_CTYPE, LANG  the first one that is set selects UTF-8 or ASCII for lines in tables and trees
`
