"""Reads database URLs as SQLAlchemy and the driver of each do.

Takes a JSON list of URLs, and prints a list of what the driver connects with, or null
where the URL is refused. PyMySQL itself takes the arguments, and only does not connect;
mysqlclient, which has no such choice, is given them by SQLAlchemy alone.
"""

import json
import ssl
import sys

import pymysql.connections
import pymysql.optionfile
from sqlalchemy.engine import make_url

# 1.0.2 ignores ssl_ca in an option file; gpustack is as strict as 1.1.1.
if "optionxform" not in vars(pymysql.optionfile.Parser):
    pymysql.optionfile.Parser.optionxform = lambda self, key: key.lower().replace("_", "-")


def arguments(text):
    try:
        url = make_url(text)
        dialect = url.get_dialect()()
        _, options = dialect.create_connect_args(url)
        options.pop("client_flag", None)
        if dialect.driver == "pymysql":
            return connection(pymysql.connections.Connection(defer_connect=True, **options))
        return {
            "user": options.get("user", ""),
            "password": options.get("password", options.get("passwd", "")),
            "host": options.get("host") or "localhost",
            "port": options.get("port") or 3306,
            "database": options.get("database", options.get("db", "")),
            "unix_socket": options.get("unix_socket", ""),
            "bind_address": "",
            "read_timeout": float(options.get("read_timeout", 0)),
            "verifies": "none",
        }
    except Exception:
        return None


def connection(c):
    verifies = "none"
    # Without options, 1.2.0 uses TLS where a server offers it, and verifies nothing. gpustack does
    # not use TLS then, as 1.1.1 does not.
    if c.ssl and getattr(c, "_ssl_required", True):
        verifies = {ssl.CERT_NONE: "nothing", ssl.CERT_REQUIRED: "authority"}[c.ctx.verify_mode]
        if c.ctx.check_hostname:
            verifies = "name"
    return {
        # The default is the process's own user, which is left to the server here.
        "user": "" if c.user == pymysql.connections.DEFAULT_USER else c.user,
        "password": c.password.decode("latin1"),
        "host": c.host,
        "port": c.port,
        "database": c.db or "",
        "unix_socket": c.unix_socket or "",
        "bind_address": c.bind_address or "",
        "read_timeout": float(c._read_timeout or 0),
        "verifies": verifies,
    }


json.dump([arguments(text) for text in json.load(sys.stdin)], sys.stdout)
