"""A protocol that recovers from nothing. On its first message, it breaks the contract as the variable BAD says."""
import json, os, signal, subprocess, sys, time

BAD = os.environ.get("BAD", "")

def out(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def misbehave(reply, event):
    """Breaks the contract, or changes the reply so that it does."""
    match BAD:
        case "hangs":
            time.sleep(1000)
        case "spins":
            while True:
                pass
        case "prints":
            out("DEBUG got it\n")
        case "twice":
            out((json.dumps(reply) + "\n") * 2)
        case "list":
            out("[]\n")
        case "noNewline":
            out(json.dumps(reply))
            time.sleep(1000)
        case "exits":
            sys.stderr.write("first\nsecond thoughts\n")
            sys.exit(3)
        case "raises":
            raise ValueError("no such message")
        case "dies":
            os.kill(os.getpid(), signal.SIGTERM)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "closes":
            os.close(1)
            time.sleep(1000)
        case "floods":
            out("x" * (17 << 20))
        case "forks":
            subprocess.Popen(["sleep", "1000"])
            out("child\n")
        case "binary":
            sys.stdout.buffer.write(b"\xff\xfe\n")
            sys.stdout.flush()
        case "n":
            reply["n"] += 1
        case "missing":
            reply["do"] = [{"do": "hold"}, {"do": "suppress"}]
        case "wrongType":
            reply["do"] = [{"do": "deliver", "id": "0"}]
        case "unknown":
            reply["do"] = [{"do": "delivr"}]
        case "held":
            reply["do"] = [{"do": "hold"}, {"do": "deliver", "id": event["id"]}]
        case "foreign":
            reply["do"] = [{"do": "transmit", "id": event["id"], "position": [0, 0]}]
        case "altered":
            reply["do"] = [{"do": "deliver", "id": event["id"], "payload": event["payload"][::-1]}]
        case "notAtHand":
            reply["do"] = [{"do": "restore", "image": [event["id"][1], 0, 1, 1], "incarnation": 1}]
        case "version":
            reply["do"] = [{"do": "record", "version": 2, "data": 0}]
        case "noProcess":
            reply["do"] = [{"do": "send", "to": 99, "message": 0}]
        case "evidence":
            reply["do"] = [{"do": "claim", "fact": "delivered", "id": event["id"]}]

lives = 0  # a sound program remembers nothing of an earlier life

for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"], "do": []}
    match event["event"]:
        case "hello":
            reply = {"n": 0, "contract": 2 if BAD == "future" else 1}
        case "start":
            lives += 1
            reply["do"] = [{"do": "release"}]
            reply["gauges"] = {"checkpoints": lives}
        case "sent":
            reply["do"] = [{"do": "transmit", "id": event["id"], "position": [0, 0]}]
        case "received":
            reply["do"] = [{"do": "deliver", "id": event["id"]}]
            misbehave(reply, event)
    out(json.dumps(reply) + "\n")
