"""Serves a project of OpenStack that has no server of its own.

wsgi.py MODULE:FACTORY PORT, or MODULE:application PORT
"""

import importlib
import os
import signal
import sys

import stacks  # for SIGUSR1

# The first process of a PID namespace has no default actions for signals.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

application, port = sys.argv[1:]
sys.argv = sys.argv[:1]  # the projects read it too
module, name = application.split(":")
application = getattr(importlib.import_module(module), name)
if name != "application":
    application = application()

# Nova patches Python's modules as it is loaded: what waits for sockets comes after it.
import socketserver
from wsgiref import simple_server


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Takes a connection a thread."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        # Not HTTPServer's, which asks DNS for the machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address
        self.setup_environ()


server = Server(("127.0.0.1", int(port)), simple_server.WSGIRequestHandler)
server.set_app(application)
server.serve_forever()
