"""Connects to the servers of database URLs as SQLAlchemy does, one after the other.

Takes a JSON list of URLs. Errors are expected: the servers show what the drivers ask for.
"""

import json
import sys

from sqlalchemy import create_engine

for url in json.load(sys.stdin):
    try:
        create_engine(url).connect()
    except Exception:
        pass
