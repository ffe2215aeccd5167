import http.client
import http.server
import itertools
import os
import sys
import threading
import time

BUG = os.environ["BUG"]
LOCK = threading.Lock()


class Shop(http.server.BaseHTTPRequestHandler):
    """Each order has a number. The shop places an order whose number it knows only once."""

    known = set()

    def do_POST(self):
        thing = self.rfile.read(int(self.headers["Content-Length"])).decode()
        number = self.headers["Order-Number"]
        print("order of", thing, flush=True)
        time.sleep(0.3)
        with LOCK:
            if number not in self.known:
                self.known.add(number)
                with open(os.path.join(os.environ["FAULTLINE_DATA"], "orders"), "a") as orders:
                    orders.write(f"{number} {thing}\n")
        self.send_response(201)
        self.end_headers()


def client(host):
    requests = itertools.count()
    for thing in range(12):
        placed = False
        while not placed:
            number = next(requests) if BUG == "client-retry" else thing
            try:
                connection = http.client.HTTPConnection(host, 8080, timeout=1)
                connection.request("POST", "/", f"thing-{thing}", {"Order-Number": str(number)})
                placed = connection.getresponse().status == 201
                connection.close()
            except OSError:
                time.sleep(0.1)


def shop():
    http.server.ThreadingHTTPServer((os.environ["FAULTLINE_BIND"], 8080), Shop).serve_forever()


shop() if sys.argv[1] == "shop" else client(sys.argv[2])
