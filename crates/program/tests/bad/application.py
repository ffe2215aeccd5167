"""Two ranks that exchange messages. On its first message, rank 1 breaks the contract as the variable BAD says."""
import json, os, subprocess, sys, time

BAD = os.environ.get("BAD", "")

def steps(event):
    match event["event"], me:
        case "next", _ if BAD == "overflow":
            reduce = {"do": "reduce", "root": 1, "numbers": [1e308], "operation": "sum"}
            return [reduce if state == 1 else {"do": "finish"}]
        case "next", 0:
            return [{"do": "compute", "for": 5}, {"do": "send", "to": 1, "content": [1.5, "ä"]}, {"do": "receive", "from": 1}]
        case "next", _:
            if BAD.startswith("next"):
                return misbehave()
            return [{"do": "receive", "from": 0}]
        case "received", 0:
            return [{"do": "finish", "result": event["messages"]}]
        case "received", _:
            if BAD == "overflow":
                return [{"do": "finish"}]
            return misbehave() if BAD else [{"do": "send", "to": 0, "content": event["messages"][0]["content"]}, {"do": "finish"}]
        case "message", 0:
            return [{"do": "finish"}]
        case "message", _:
            return [{"do": "send", "to": 0, "content": event["content"]}, {"do": "finish", "result": 7}]

def misbehave():
    match BAD:
        case "nextNothing":
            return []
        case "nextForever":
            return [{"do": "compute", "for": 0}]
        case "nextReduce":
            return [{"do": "reduce", "root": 1, "numbers": [1], "operation": "sum"}]
        case "helper":
            subprocess.Popen(["sleep", "30"])
            os._exit(3)
        case "nan":
            return [{"do": "finish", "result": {"text": "not NaN", "loss": float("nan")}}]
        case "hangs":
            time.sleep(1000)
        case "exits":
            sys.exit("no more")
        case "self":
            return [{"do": "send", "to": 1, "content": 0}]
        case "noRank":
            return [{"do": "compute", "for": 1}, {"do": "receive", "from": 2}]
        case "twice":
            return [{"do": "gather", "from": [0, 0]}]
        case "middle":
            return [{"do": "receive", "from": 0}, {"do": "finish"}]
        case "unknown":
            return [{"do": "sned", "to": 0}]
        case "noDo":
            return [{"to": 0}]
        case "missing":
            return [{"do": "send", "to": 0}]
        case "negative":
            return [{"do": "compute", "for": -1}]
        case "operation":
            return [{"do": "reduce", "root": 0, "numbers": [1], "operation": "max"}]
        case "all":
            return [{"do": "allToAll", "contents": [0]}]

for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    match event["event"]:
        case "hello":
            assert event["kind"] == "application"
            reply["contract"] = 1
        case "start":
            me, state = event["me"], 0
            if BAD == "start":
                reply["do"] = [{"do": "finish"}]
        case "save":
            if BAD != "save":
                reply |= {"state": state, "bulk": 100}
        case "restore":
            state = event["state"] or 0
        case _:
            state += 1
            reply |= {"do": steps(event), "progress": {"done": state, "total": 3}}
    print(json.dumps(reply), flush=True)
