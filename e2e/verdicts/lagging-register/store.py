"""A register with a primary and a replica, and its client. Wrong: the replica applies a write half a second late, and
answers reads all the same."""

import json
import os
import socket
import socketserver
import sys
import threading

LAG = 0.5
values, lock = {}, threading.Lock()


def hosts():
    return dict(it.split("=") for it in os.environ["FAULTLINE_NODES"].split(","))


def exchange(host, message, timeout=1.0):
    with socket.create_connection((host, 7000), timeout=timeout) as connection:
        connection.sendall(json.dumps(message).encode() + b"\n")
        return json.loads(connection.makefile().readline())


class Server(socketserver.StreamRequestHandler):
    def handle(self):
        event = json.loads(self.rfile.readline())
        key, is_lagging = event["key"], os.environ["BUG"] == "lagging"
        primary = os.environ["FAULTLINE_CLUSTER"] == "paris"
        with lock:
            answer = None
            match event["event"]:
                case "read":
                    answer = values.get(key)
                    if not primary and not is_lagging:
                        answer = exchange(hosts()["paris-0"], event)
                case "copy":
                    values[key] = event["value"]
                case "write":
                    self.write(key, event["value"], is_lagging)
                case "cas":
                    answer = values.get(key) == event["from"]
                    if answer:
                        self.write(key, event["to"], is_lagging)
        self.wfile.write(json.dumps(answer).encode() + b"\n")

    def write(self, key, value, is_lagging):
        values[key] = value
        copy = {"event": "copy", "key": key, "value": value}
        if is_lagging:
            threading.Timer(LAG, exchange, (hosts()["rennes-0"], copy)).start()


def client():
    for line in sys.stdin:
        event = json.loads(line)
        reply = {"n": event["n"]}
        match event["event"]:
            case "hello":
                reply["contract"] = 1
            case "start":
                number, timeout = event["client"], event["timeout"] / 1000
            case kind:
                # Only the primary accepts writes. Half of the clients read from the replica.
                node = "rennes-0" if kind == "read" and number % 2 else "paris-0"
                try:
                    reply["ok"] = exchange(hosts()[node], event, timeout)
                except ConnectionRefusedError as error:
                    reply["fail"] = str(error)
                except Exception as error:
                    reply["unknown"] = f"{type(error).__name__}: {error}"
        print(json.dumps(reply), flush=True)


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


if sys.argv[1] == "serve":
    Listener((os.environ["FAULTLINE_BIND"], 7000), Server).serve_forever()
else:
    client()
