"""Reads database URLs as SQLAlchemy and PyMySQL's dialect do.

Takes a JSON list of URLs, and prints a list of what the driver is called with, or null
where the URL is refused.
"""

import json
import sys

from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.engine import make_url


def arguments(text):
    try:
        url = make_url(text)
        _, options = pymysql.dialect().create_connect_args(url)
    except Exception:
        return None
    return {
        "user": options.get("user", ""),
        "password": options.get("password", ""),
        "host": options.get("host") or "localhost",
        "port": options.get("port") or 3306,
        "database": options.get("database") or options.get("db") or "",
        "unix_socket": options.get("unix_socket", ""),
        "read_timeout": float(options.get("read_timeout", 0)),
        "ssl": sorted((options.get("ssl") or {}).keys()),
    }


json.dump([arguments(text) for text in json.load(sys.stdin)], sys.stdout)
