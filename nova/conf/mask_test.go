package conf_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/conf"
)

func TestMasked(t *testing.T) {
	const text = `# rabbit://nova:hunter2@old/
[DEFAULT]
transport_url = rabbit://nova:hunter2@ctl:5672/
#transport_url = rabbit://nova:hunter2@ctl:5672/
my_ip = 10.0.0.1
[keystone_authtoken]
password = hunter2
  hunter2
  and hunter2
username = nova
memcache_secret_key=hunter2
pass: hunter2
bypass = no
[placement]
auth_url = http://ctl:5000/v3
#www_authenticate_uri = http://nova:hunter2@ctl:5000
memcached_urls = inet:ctl:11211
sql_url = mysql+pymysql:///nova?password=hunter2
[pci]
passthrough_whitelist = {"vendor_id": "10de"}
alias = {
  "name": "A"
# A password is set by hand: here
dead = x mysql+pymysql://n:hunter2@h/nova
api_servers = https://h/x?a=b&X-Amz-Signature=hunter2
plain = https://h/x?a=b
snmp_psk = hunter2
hmac_keys = hunter2
approle_role_id = hunter2
backend_argument = redis_password:hunter2
`
	const want = `# rabbit: ***
[DEFAULT]
transport_url = ***
#transport_url = ***
my_ip = 10.0.0.1
[keystone_authtoken]
password = ***
 ***
 ***
username = nova
memcache_secret_key= ***
pass: ***
bypass = no
[placement]
auth_url = http://ctl:5000/v3
#www_authenticate_uri = ***
memcached_urls = ***
sql_url = ***
[pci]
passthrough_whitelist = {"vendor_id": "10de"}
alias = {
  "name": "A"
# A password is set by hand: here
dead = ***
api_servers = ***
plain = https://h/x?a=b
snmp_psk = ***
hmac_keys = ***
approle_role_id = ***
backend_argument = ***
`
	hosttest.Equal(t, want, string(conf.Masked([]byte(text))))
}

func TestOwner(t *testing.T) {
	for _, test := range []struct{ name, file, text, want string }{
		{"nobody's", "/etc/nova/nova.conf", "# my own file, with puppet in mind\n[DEFAULT]\n", ""},
		{"Ansible's", "/etc/nova/nova.conf", "# {{ ansible_managed }}\n# Ansible managed\n", "Ansible"},
		{"Puppet's", "/etc/nova/nova.conf", "# This file is managed by Puppet\n[DEFAULT]\n", "Puppet"},
		{"Juju's", "/etc/nova/nova.conf", "###\n# [ WARNING ]\n# Configuration file maintained by Juju. Local changes may be overwritten.\n###\n", "Juju"},
		{"kolla's", "/etc/kolla/nova-compute/nova.conf", "[DEFAULT]\n", "kolla-ansible"},
		{"TripleO's", "/var/lib/config-data/puppet-generated/nova_libvirt/etc/nova/nova.conf", "[DEFAULT]\n", "TripleO"},
		{"RHOSO's", "/var/lib/openstack/config/nova/01-nova.conf", "[DEFAULT]\n", "RHOSO"},
		{"a mark further down", "/etc/nova/nova.conf", "[DEFAULT]\n# managed by Puppet\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := conf.Owner(test.file, []byte(test.text)); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
