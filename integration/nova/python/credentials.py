"""Prints, as JSON lines, what openstacksdk asks Keystone for with many clouds.yaml and environments.

credentials.py: the first line names the releases. Each other line is a case: its files ("cwd" is
the current folder, "home" the one of the user), variables and options, and the answer: the
request for a token and the settings of requests after it, or the error.

An answer is the one of openstacksdk where Keystone accepts such a request, otherwise the one of
the openstack command (osc_lib, which adds the default domain) where Keystone accepts that one,
and otherwise an error.
"""

import ast
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import warnings

import openstack.config.loader as loader
import osc_lib.cli.client_config as client_config
import requests
from keystoneauth1 import session as ks_session
from requests.adapters import BaseAdapter

BASE = "http://example.com"
warnings.simplefilter("ignore")


class Keystone(BaseAdapter):
    """Answers as a Keystone with version 3 alone, and keeps the request for a token."""

    def __init__(self):
        super().__init__()
        self.asked = None

    def send(self, request, verify=True, cert=None, **_):
        path = request.path_url.rstrip("/")
        for version in ("/v3", "/v2.0", "/v2"):
            if path.endswith(version):
                path = path[: -len(version)]
        links = [{"rel": "self", "href": BASE + path + "/v3/"}]
        body = {"versions": {"values": [{"id": "v3.14", "status": "stable", "links": links}]}}
        response = requests.Response()
        response.status_code = 300
        if request.method == "POST":
            self.asked = {"url": request.url, "body": json.loads(request.body), "verify": verify, "cert": cert}
            body = {"token": {"methods": [], "expires_at": "2099-01-01T00:00:00Z", "user": {}}}
            response.status_code = 201
            response.headers["X-Subject-Token"] = "token"
        response.headers["Content-Type"] = "application/json"
        response._content = json.dumps(body).encode()
        response.url = request.url
        response.request = request
        return response

    def close(self):
        pass


def ask(config, options):
    keystone = Keystone()
    # The arguments of the openstack command whose defaults are variables.
    names = {"region_name": "OS_REGION_NAME", "interface": "OS_INTERFACE", "cacert": "OS_CACERT", "cert": "OS_CERT", "key": "OS_KEY"}
    given = {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}
    given.update(options)
    region = config.get_one(given.pop("cloud", None), **given)

    def session(**arguments):
        s = ks_session.Session(**arguments)
        s.session.mount("http://", keystone)
        s.session.mount("https://", keystone)
        s.session.trust_env = False
        return s

    region.set_session_constructor(session)
    region.get_session().auth.get_access(region.get_session())
    answer = keystone.asked
    answer["region"] = region.get_region_name("compute") or ""
    answer["interface"] = region.get_interface("compute")
    return answer


def texts(value, key="auth"):
    """Whether all values are texts, as Keystone's schema demands (keystone/auth/schema.py)."""
    if isinstance(value, dict):
        return all(texts(v, k) for k, v in value.items())
    return isinstance(value, str) or key in ("methods", "all")


def accepted(body):
    """What Keystone demands (keystone/auth/schema.py, auth/core.py, auth/plugins/core.py)."""
    if not texts(body):
        return False
    identity, scope = body["auth"]["identity"], body["auth"].get("scope", {})
    named = [scope["project"]] if "project" in scope else []
    for method in identity["methods"]:
        given = identity[method]
        if method == "password":
            named.append(given["user"])
        if method == "application_credential":
            if scope:
                return False  # "Application credentials cannot request a scope."
            if "id" not in given:
                named.append(given["user"])
    return all("id" in n or "name" in n and "domain" in n for n in named)


def answer(case):
    for name in list(os.environ):
        if name.startswith(("OS_", "XDG_", "SNAP_")):
            del os.environ[name]
    home = tempfile.mkdtemp()
    try:
        os.makedirs(home + "/cwd")
        for name, content in case.get("files", {}).items():
            path = os.path.join(home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(content if isinstance(content, str) else json.dumps(content))
        os.environ["HOME"] = home
        for name, value in case.get("env", {}).items():
            os.environ[name] = value.replace("$HOME", home)
        os.chdir(home + "/cwd")
        errors = []
        for by in ("openstacksdk", "openstack"):
            try:
                importlib.reload(loader)
                if by == "openstacksdk":
                    config = loader.OpenStackConfig()
                else:
                    client_config.config.OpenStackConfig = loader.OpenStackConfig
                    importlib.reload(client_config)
                    config = client_config.OSC_Config(override_defaults={"identity_api_version": "3", "default_domain": "default"})
                got = ask(config, dict(case.get("options", {})))
            except Exception as e:
                errors.append(f"{type(e).__name__}: {e}")
                continue
            if accepted(got["body"]):
                got["by"] = by
                got = json.loads(json.dumps(got).replace(home, "$HOME"))
                return {key: value for key, value in got.items() if key not in DEFAULTS or value != DEFAULTS[key]}
            errors.append("Keystone rejects " + json.dumps(got["body"]))
        return {"error": errors[0].replace(home, "$HOME").splitlines()[0]}
    finally:
        os.chdir("/")
        shutil.rmtree(home)


def own():
    """The clouds of openstacksdk's unit tests."""
    path = os.path.join(os.path.dirname(loader.__file__), "../tests/unit/config/base.py")
    found = {}
    for node in ast.parse(open(path).read()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id.endswith("_CONF"):
            found[node.targets[0].id] = ast.literal_eval(node.value)
    files = {"cwd/clouds.yaml": found["USER_CONF"], "cwd/secure.yaml": found["SECURE_CONF"], "cwd/clouds-public.yaml": found["VENDOR_CONF"]}
    for cloud, keys in found["USER_CONF"]["clouds"].items():
        alone = {**files, "cwd/clouds.yaml": {"clouds": {cloud: keys}}}
        yield {"name": "openstacksdk " + cloud, "files": alone, "options": {"cloud": cloud}}
    files["cwd/clouds.yaml"] = {"clouds": {cloud: keys for cloud, keys in found["USER_CONF"]["clouds"].items() if "regions" in keys}}
    for region in ("region1", "region2", "region-no-value", "region3"):
        yield {"name": "openstacksdk region " + region, "files": files, "options": {"cloud": "_test_cloud_regions", "region_name": region}}


URL = BASE + "/v3"
WHOLE = {"auth_url": URL, "username": "me", "password": "pw", "project_name": "p", "user_domain_name": "ud", "project_domain_name": "pd"}
BASES = {
    "password": WHOLE,
    "unscoped": {"auth_url": URL, "username": "me", "password": "pw", "user_domain_id": "udi"},
    "no domains": {"auth_url": URL, "username": "me", "password": "pw", "project_name": "p"},
    "user id": {"auth_url": URL, "user_id": "mine", "password": "pw", "project_id": "pi"},
}
TYPED = {
    "token": {"auth_url": URL, "token": "t", "project_name": "p", "project_domain_name": "pd"},
    "v3token": {"auth_url": URL, "token": "t", "project_id": "pi"},
    "v3password": WHOLE,
    "v3applicationcredential": {"auth_url": URL, "application_credential_id": "c", "application_credential_secret": "s"},
}
NAMED = {"auth_url": URL, "application_credential_name": "n", "application_credential_secret": "s", "username": "me", "user_domain_name": "ud"}
VALUES = {
    "auth_url": BASE + "/other/v3", "username": "you", "user_name": "you", "user_id": "yours", "password": "word",
    "project_name": "q", "project_id": "qi", "tenant_name": "r", "tenant_id": "ri", "user_domain_id": "xdi", "user_domain_name": "xd",
    "project_domain_id": "ydi", "project_domain_name": "yd", "domain_id": "di", "domain_name": "d", "default_domain_id": "zdi",
    "default_domain_name": "zd", "default_domain": "dd", "system_scope": "all", "trust_id": "tr", "token": "tt", "auth_token": "at",
    "application_credential_id": "ci", "application_credential_name": "cn", "application_credential_secret": "cs", "colour": "red",
}
BESIDE = {
    "region_name": "two", "interface": "internal", "endpoint_type": "admin", "verify": False, "insecure": True, "cacert": "ca.pem",
    "cert": "cert.pem", "key": "key.pem", "identity_api_version": "3", "auth_plugin": "token", "profile": "other",
    "compute_api_version": "2.1", "compute_interface": "admin", "compute_region_name": "three", "regions": ["three", "four"], "api_timeout": 5,
}
# What is tried in every place.
EVERYWHERE = ("auth_url", "user_name", "password", "project_name", "project_id", "tenant_name", "domain_id", "token")
# Of an answer, what is left out if it is so.
DEFAULTS = {"by": "openstacksdk", "url": URL + "/auth/tokens", "verify": True, "cert": None, "region": "", "interface": "public"}


def hyphen(key):
    return key.replace("_", "-")


def clouds(lab, **files):
    made = {"cwd/clouds.yaml": {"clouds": {"lab": lab}}}
    if "secure" in files:
        made["cwd/secure.yaml"] = {"clouds": {"lab": files["secure"]}}
    if "public" in files:
        made["cwd/clouds-public.yaml"] = {"public-clouds": {"vendor": files["public"]}}
    return {"files": made, "env": {"OS_CLOUD": "lab"}}


def variables(auth, **more):
    return {"env": {"OS_" + key.upper(): value for key, value in {**auth, **more}.items()}}


def places(auth, key, value, beside=None):
    """A key of auth in each of its places."""
    beside = beside or {}
    lab = {"auth": auth, **beside}
    yield "auth", clouds({"auth": {**auth, key: value}, **beside})
    yield "beside", clouds({**lab, key: value})
    if "_" in key:
        yield "auth, hyphens", clouds({"auth": {**auth, hyphen(key): value}, **beside})
        yield "beside, hyphens", clouds({**lab, hyphen(key): value})
    yield "secure.yaml", clouds(lab, secure={"auth": {key: value}})
    yield "secure.yaml, beside", clouds(lab, secure={key: value})
    yield "profile", clouds({"profile": "vendor", **lab}, public={"auth": {key: value}})
    yield "profile, beside", clouds({"profile": "vendor", **lab}, public={key: value})
    yield "region", clouds({**lab, "regions": [{"name": "one", "values": {"auth": {key: value}}}]})
    yield "variable", variables(auth, **beside, **{key: value})


def table():
    for base, auth in BASES.items():
        for key, value in VALUES.items():
            rest = {k: v for k, v in auth.items() if k != key}
            for place, case in places(rest, key, value):
                if base == "password" and key in EVERYWHERE or place in ("auth", "beside", "variable"):
                    yield {"name": f"{base}: {key} in {place}", **case}
    for place, case in places({k: v for k, v in WHOLE.items() if k != "project_name"}, "project_name", None):
        if place != "variable":
            yield {"name": f"null project_name in {place}", **case}
    # The same key twice.
    for key in ("username", "project_name", "project_id", "auth_url", "user_domain_name", "domain_id"):
        for place, case in places({**WHOLE, key: "first" if key != "auth_url" else URL}, key, VALUES[key]):
            if place != "variable":
                yield {"name": f"twice: {key} in {place}", **case}
    yield {"name": "twice: project_name and tenant_name", **clouds({"auth": {**WHOLE, "tenant_name": "other"}})}
    yield {"name": "twice: project_name and project-name", **clouds({"auth": {**WHOLE, "project-name": "other"}})}
    yield {"name": "twice: project_id and tenant-id", **clouds({"auth": {"tenant-id": "ti", "project_id": "pi", **BASES["unscoped"]}})}
    for kind, auth in TYPED.items():
        yield {"name": kind, **clouds({"auth_type": kind, "auth": auth})}
        yield {"name": kind + " beside", **clouds({"auth_type": kind, **auth})}
        yield {"name": kind + " of variables", **variables(auth, auth_type=kind)}
        yield {"name": kind + ", auth-type", **clouds({"auth-type": kind, "auth": auth})}
        for key, value in VALUES.items():
            rest = {k: v for k, v in auth.items() if k != key}
            for place, case in places(rest, key, value, {"auth_type": kind}):
                if place in ("auth", "variable"):
                    yield {"name": f"{kind}: {key} in {place}", **case}
        for key in auth:
            rest = {k: v for k, v in auth.items() if k != key}
            yield {"name": f"{kind} without {key}", **clouds({"auth_type": kind, "auth": rest})}
    yield {"name": "credential by name", **clouds({"auth_type": "v3applicationcredential", "auth": NAMED})}
    for key in NAMED:
        yield {"name": f"credential by name without {key}", **clouds({"auth_type": "v3applicationcredential", "auth": {k: v for k, v in NAMED.items() if k != key}})}
    for kind in ("v2password", "v2token", "v3oidcpassword", "v3totp", "none", "admin_token", "http_basic", "v3kerberos", "nonsense", ""):
        yield {"name": "auth_type " + kind, **clouds({"auth_type": kind, "auth": WHOLE})}
    for key in WHOLE:
        rest = {k: v for k, v in WHOLE.items() if k != key}
        yield {"name": f"password without {key}", **clouds({"auth": rest})}
        yield {"name": f"variables without {key}", **variables(rest)}
    for key, value in BESIDE.items():
        yield {"name": f"beside: {key}", **clouds({"auth": WHOLE, key: value})}
        if "_" in key:
            yield {"name": f"beside: {hyphen(key)}", **clouds({"auth": WHOLE, hyphen(key): value})}
        yield {"name": f"beside, secure.yaml: {key}", **clouds({"auth": WHOLE}, secure={key: value})}
        yield {"name": f"beside, profile: {key}", **clouds({"auth": WHOLE, "profile": "vendor"}, public={key: value})}
        yield {"name": f"beside, region: {key}", **clouds({"auth": WHOLE, "regions": [{"name": "one", "values": {key: value}}]})}
        if isinstance(value, str):
            yield {"name": f"variable {key}", **variables(WHOLE, **{key: value})}
            named = clouds({"auth": WHOLE})
            named["env"]["OS_" + key.upper()] = value
            yield {"name": f"variable {key} with OS_CLOUD", **named}
    for value in ("public", "publicURL", "internalURL", "adminURL", "elsewhere"):
        yield {"name": f"interface {value}", **clouds({"auth": WHOLE, "interface": value})}
    for value in ("true", "True", "false", "1", "yes", "", 1, 0, None):
        yield {"name": f"insecure {value!r}", **clouds({"auth": WHOLE, "insecure": value})}
        yield {"name": f"verify {value!r}", **clouds({"auth": WHOLE, "verify": value})}
        if isinstance(value, str):
            yield {"name": f"OS_INSECURE={value}", **variables(WHOLE, insecure=value)}
            yield {"name": f"OS_VERIFY={value}", **variables(WHOLE, verify=value)}
    yield {"name": "insecure and cacert", **clouds({"auth": WHOLE, "insecure": True, "cacert": "ca.pem"})}
    yield {"name": "cert and key", **clouds({"auth": WHOLE, "cert": "~/cert.pem", "key": "~/key.pem", "cacert": "~/ca.pem"})}
    for name, options in {"region": {"region_name": "two"}, "cacert": {"cacert": "mine.pem"}, "insecure": {"insecure": True}}.items():
        for what, lab in {"nothing": {}, "one": {"region_name": "one", "cacert": "ca.pem", "verify": True}, "two": {"regions": ["one", "two"]},
                          "list": {"region_name": "one,two"}, "values": {"regions": [{"name": "two", "values": {"auth": {"project_name": "second"}, "interface": "admin"}}]}}.items():
            yield {"name": f"option {name}, cloud with {what}", **clouds({"auth": WHOLE, **lab}), "options": options}
        yield {"name": f"option {name}, variables", **variables(WHOLE), "options": options}
        yield {"name": f"option {name}, variables with region", **variables(WHOLE, region_name="one"), "options": options}
    for url in ("", "/", "/v3", "/v3/", "/v2", "/v2.0", "/v2.0/", "/identity", "/identity/", "/identity/v3", "/{region_name}/v3", "/{colour}/v3", "/{"):
        yield {"name": f"auth_url {url}", **clouds({"auth": {**WHOLE, "auth_url": BASE + url}, "region_name": "one"})}
    yield {"name": "auth_url without a scheme", **clouds({"auth": {**WHOLE, "auth_url": "example.com/v3"}})}
    for profile in ("nowhere", "rackspace", "https://nowhere.invalid"):
        if "://" not in profile:
            yield {"name": "profile " + profile, **clouds({"auth": WHOLE, "profile": profile})}
            yield {"name": "cloud " + profile, **clouds({"auth": WHOLE, "cloud": profile})}
    yield {"name": "vendor by cloud", **clouds({"auth": {"username": "me", "password": "pw"}, "cloud": "vendor"}, public={"auth": {k: v for k, v in WHOLE.items() if k not in ("username", "password")}, "region_name": "of-vendor"})}
    yield {"name": "profile of regions", **clouds({"auth": WHOLE, "profile": "vendor"}, public={"regions": ["a", "b"]})}
    yield {"name": "profile of regions, second", **clouds({"auth": WHOLE, "profile": "vendor"}, public={"regions": ["a", "b"]}), "options": {"region_name": "b"}}
    yield {"name": "profile of regions, third", **clouds({"auth": WHOLE, "profile": "vendor"}, public={"regions": ["a", "b"]}), "options": {"region_name": "c"}}
    text = "clouds:\n  lab:\n    auth: {auth_url: '%s', username: me, user_domain_name: ud, project_name: p, project_domain_name: pd}\n    %s\n"
    for line in ("password: 1234", "password: 0123", "password: 1.10", "password: 0x10", "password: 12:30", "password: 1_000", "password: yes", "password: null",
                 "password: ~", "password: 2026-11-24", "password: '0123'", "password: 1e3", "password: 12345678901234567890123", "password: 0o17", "password: +1",
                 "password: pw\n    verify: no", "password: pw\n    insecure: yes", "password: pw\n    verify: off", "password: pw\n    verify: No",
                 "password: pw\n    <<: {region_name: merged}", "password: !!str 12", "password: pw\n    password: again", "password: {a: b}", "password: [a]",
                 "password: pw{brace}", "password: pw\n    region_name: 5", "password: pw\n    regions: [{nome: x}]", "password: pw\n    regions: []", "password: pw\n    regions:"):
        yield {"name": "text " + line, "files": {"cwd/clouds.yaml": text % (URL, line)}, "env": {"OS_CLOUD": "lab"}}
    for name, content in {"empty": "", "null": "clouds:\n", "list": "clouds: []\n", "scalar": "clouds: x\n", "cloud is null": "clouds: {lab: }\n",
                          "cloud is a scalar": "clouds: {lab: x}\n", "no auth": "clouds: {lab: {region_name: one}}\n", "auth is null": "clouds: {lab: {auth: , auth_url: x}}\n",
                          "auth is a scalar": "clouds: {lab: {auth: x}}\n", "auth is a list": "clouds: {lab: {auth: [a]}}\n",
                          "anchors": "base: &base {auth_url: '%s', username: me, password: pw, project_id: pi, user_domain_id: udi}\nclouds: {lab: {auth: {<<: *base, project_id: own}}}\n" % URL,
                          "alias": "base: &base {auth_url: '%s', username: me, password: pw, project_id: pi, user_domain_id: udi}\nclouds: {lab: {auth: *base}}\n" % URL}.items():
        yield {"name": "document " + name, "files": {"cwd/clouds.yaml": content}, "env": {"OS_CLOUD": "lab"}}
    whole = {"clouds": {"lab": {"auth": WHOLE}}}
    other = {"clouds": {"lab": {"auth": {**WHOLE, "username": "other"}}}}
    for where in ("cwd/clouds.yml", "cwd/clouds.json", ".config/openstack/clouds.yaml", "xdg/openstack/clouds.yaml"):
        yield {"name": "file " + where, "files": {where: whole}, "env": {"OS_CLOUD": "lab", **({"XDG_CONFIG_HOME": "$HOME/xdg"} if "xdg" in where else {})}}
    yield {"name": "file of .config with XDG_CONFIG_HOME", "files": {".config/openstack/clouds.yaml": whole}, "env": {"OS_CLOUD": "lab", "XDG_CONFIG_HOME": "$HOME/xdg"}}
    yield {"name": "file of XDG_CONFIG_DIRS", "files": {"dirs/openstack/clouds.yaml": whole}, "env": {"OS_CLOUD": "lab", "XDG_CONFIG_DIRS": "$HOME/dirs"}}
    yield {"name": "the first file", "files": {"cwd/clouds.yaml": whole, "cwd/clouds.yml": other, ".config/openstack/clouds.yaml": other}, "env": {"OS_CLOUD": "lab"}}
    yield {"name": "file that is named", "files": {"mine.yaml": whole, "cwd/clouds.yaml": other}, "env": {"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": "$HOME/mine.yaml"}}
    secret = {"clouds": {"lab": {"auth": {"password": "secret"}}}}
    yield {"name": "secure file that is named", "files": {"cwd/clouds.yaml": whole, "mine.yaml": secret}, "env": {"OS_CLOUD": "lab", "OS_CLIENT_SECURE_FILE": "$HOME/mine.yaml"}}
    yield {"name": "secure file beside and in the folders", "files": {"mine/clouds.yaml": whole, "mine/secure.yaml": {"clouds": {"lab": {"auth": {"password": "beside"}}}}, "cwd/secure.yaml": secret},
           "env": {"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": "$HOME/mine/clouds.yaml"}}
    yield {"name": "secure file of a cloud alone", "files": {"cwd/clouds.yaml": {"clouds": {}}, "cwd/secure.yaml": whole}, "env": {"OS_CLOUD": "lab"}}
    yield {"name": "secure file of two clouds", "files": {"cwd/clouds.yaml": whole, "cwd/secure.yaml": {"clouds": {"other": {"auth": {"password": "secret"}}}}}, "env": {"OS_CLOUD": "lab"}}
    yield {"name": "variables with OS_CLOUD", "files": {"cwd/clouds.yaml": whole}, "env": {"OS_CLOUD": "lab", **variables({**WHOLE, "username": "other"})["env"]}}
    yield {"name": "variables that are empty", **variables(WHOLE, project_id="", domain_id="", tenant_name="", region_name="", user_domain_id="", interface="", cacert="")}
    yield {"name": "OS_ENDPOINT_TYPE and OS_INTERFACE", **variables(WHOLE, endpoint_type="internal", interface="admin")}


if __name__ == "__main__":
    releases = {name: importlib.metadata.version(name) for name in ("openstacksdk", "keystoneauth1", "osc-lib")}
    print(json.dumps({"releases": releases}, sort_keys=True))
    for case in [*own(), *table()]:
        print(json.dumps({**case, "answer": answer(case)}, sort_keys=True, separators=(",", ":")))
