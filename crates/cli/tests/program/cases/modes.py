"""An application that passes a number around a ring, or misbehaves as its parameter `mode` says."""
import json, random, sys

def steps(event):
    global rounds
    rounds += 1
    print(f"round {rounds} at rank {me}", file=sys.stderr)
    if mode == "random" and rounds > 3:
        return [{"do": "finish", "result": random.random()}]
    if rounds > 3:
        return [{"do": "finish", "result": rounds}]
    sends = [] if mode == "deadlock" and rounds > 1 else [{"do": "send", "to": (me + 1) % ranks, "content": rounds}]
    return [{"do": "compute", "for": 20000000}, *sends, {"do": "receive", "from": (me - 1) % ranks}]

for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    match event["event"]:
        case "hello":
            print("ready", file=sys.stderr)
            reply["contract"] = 1
        case "start":
            me, ranks, mode, rounds = event["me"], event["ranks"], event["parameters"]["mode"], 0
        case "save":
            reply["state"] = rounds
        case "restore":
            rounds = event["state"] or 0
        case "next" | "received":
            reply["do"] = steps(event)
    print(json.dumps(reply), flush=True)
