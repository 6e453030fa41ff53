"""Serves Placement, which has no server of its own.

serve.py PORT
"""

import os
import signal
import socketserver
import sys
from wsgiref import simple_server

from placement import wsgi

# The first process of a PID namespace has no default actions for signals.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Serves each connection in a thread."""

    daemon_threads = True

    def server_bind(self):
        # Not HTTPServer's, which asks DNS for the machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address
        self.setup_environ()


class Handler(simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        """Placement logs its requests itself."""


port = int(sys.argv.pop())
server = Server(("127.0.0.1", port), Handler)
server.set_app(wsgi.init_application())
server.serve_forever()
