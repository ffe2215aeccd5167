import http.server
import os
import sys

from lines import BUG, ask, note, notes, serve


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, text):
        self.send_response(200 if BUG == "error-200" else status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/health":
            return self.reply(200, "well\n")
        found = ask("store-0", "notes")
        # The check must not depend on the bug: a list that is not there is always an error.
        if not found:
            self.send_error(503)
        else:
            self.reply(200, found.replace(" ", "\n") + "\n")

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if ask("store-0", "add", text) == "ok":
            self.reply(201, "stored\n")
        else:
            self.reply(503, "error: the store does not answer\n")


def store():
    def answer(verb, text=None):
        if verb == "notes":
            return " ".join(["notes", *notes("notes")])
        note("notes", text)
        return "ok"

    serve(answer)


def front():
    http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Front).serve_forever()


{"front": front, "store": store}[sys.argv[1]]()
