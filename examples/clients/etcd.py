"""A client of etcd for the model `register`, through etcd's HTTP gateway. It needs only Python.

    clients:
      kv: { by: clients-0, command: [python3, etcd.py], model: register }

`parameters: { serializable: true }` reads from one member, which does not ask the others.
"""

import base64
import http.client
import json
import sys


def text(value):
    return base64.b64encode(str(value).encode()).decode()


class Etcd:
    def __init__(self, start):
        self.hosts = [node["host"] for node in start["nodes"] if not node["name"].startswith("clients-")]
        self.timeout = start["timeout"] / 1000
        self.serializable = start["parameters"].get("serializable", False)
        self.at = start["client"] % len(self.hosts)
        self.connection = None

    def leave(self):
        """Closes the connection, and uses the next member from now on."""
        if self.connection:
            self.connection.close()
        self.connection = None
        self.at = (self.at + 1) % len(self.hosts)

    def ask(self, what, body):
        if self.connection is None:
            connection = http.client.HTTPConnection(self.hosts[self.at], 2379, timeout=self.timeout)
            connection.connect()
            self.connection = connection
        self.connection.request("POST", f"/v3/kv/{what}", json.dumps(body))
        response = self.connection.getresponse()
        reply = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(reply.get("message", response.status))
        return reply

    def carry_out(self, event):
        key = text(event["key"])
        match event["event"]:
            case "read":
                found = self.ask("range", {"key": key, "serializable": self.serializable}).get("kvs")
                return int(base64.b64decode(found[0]["value"])) if found else None
            case "write":
                self.ask("put", {"key": key, "value": text(event["value"])})
                return None
            case "cas":
                compare = {"key": key, "result": "EQUAL", "target": "VALUE", "value": text(event["from"])}
                if event["from"] is None:
                    compare = {"key": key, "result": "EQUAL", "target": "CREATE", "create_revision": "0"}
                put = {"requestPut": {"key": key, "value": text(event["to"])}}
                return self.ask("txn", {"compare": [compare], "success": [put]}).get("succeeded", False)


for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    match event["event"]:
        case "hello":
            reply["contract"] = 1
        case "start":
            etcd = Etcd(event)
        case _:
            try:
                reply["ok"] = etcd.carry_out(event)
            except ConnectionRefusedError as error:
                # Nothing was sent.
                reply["fail"] = str(error)
                etcd.leave()
            except Exception as error:
                # The request may have taken effect, or may still take effect.
                reply["unknown"] = f"{type(error).__name__}: {error}"
                etcd.leave()
    print(json.dumps(reply), flush=True)
