"""Connects to the servers of database URLs as SQLAlchemy does, one after the other.

Takes a JSON list of URLs. Errors are expected: the servers show what the drivers ask for.
"""

import json
import sys

import pymysql.connections
from sqlalchemy import create_engine

# PyMySQL 1.2.0 uses TLS where nothing asks for it, if the server offers it. What is asked for counts.
init = pymysql.connections.Connection.__init__


def only_what_is_asked_for(self, *args, **options):
    init(self, *args, **dict(options, defer_connect=True))
    if not getattr(self, "_ssl_required", True):
        self.ssl = False
    if not options.get("defer_connect"):
        self.connect()


pymysql.connections.Connection.__init__ = only_what_is_asked_for

for url in json.load(sys.stdin):
    try:
        create_engine(url).connect()
    except Exception:
        pass
