"""Serves Keystone or Placement, which have no server of their own.

wsgi.py MODULE:FACTORY PORT
"""

import importlib
import os
import signal
import socketserver
import sys
from wsgiref import simple_server

# The first process of a PID namespace has no default actions for signals.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Takes a connection a thread."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        # Not HTTPServer's, which asks DNS for the machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address
        self.setup_environ()


application, port = sys.argv[1:]
sys.argv = sys.argv[:1]  # the projects read it too
module, factory = application.split(":")
application = getattr(importlib.import_module(module), factory)()
server = Server(("127.0.0.1", int(port)), simple_server.WSGIRequestHandler)
server.set_app(application)
server.serve_forever()
