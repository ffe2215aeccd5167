import http.server
import itertools
import os

requests = itertools.count(1)


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        overloaded = os.environ["BUG"] == "overloaded" and next(requests) % 3 == 0
        self.send_response(503 if overloaded else 204)
        self.end_headers()


http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Web).serve_forever()
