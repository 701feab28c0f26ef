"""A web server on this computer that serves files of models, and breaks off where it is told to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves `contents`; of a file in `short`, only so many bytes of those that it promised."""

    def __init__(self, contents):
        self.contents, self.short, self.requests = dict(contents), {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.removeprefix("/models/")
                outer.requests.append(path)
                data = outer.contents.get(path)
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write((data or b"")[: outer.short.get(path)])

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/models"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self):
        """Close the port; again does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
