// Start again: after any failure, every process returns to its initial state. The same protocol as
// ../python/again.py.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type member struct {
	Life int
	Up   bool
}

type event struct {
	N          int
	Event      string
	ID         json.RawMessage
	Stamp      int
	Payload    string
	Parameters struct{ AcceptsStale bool }
	Membership struct{ Members []member }
}

type action map[string]any

// process is one life of a process.
type process struct {
	acceptsStale bool
	incarnation  int
	running      bool
	early        []event
	do           []action
}

func (p *process) act(do string, fields action) {
	fields["do"] = do
	p.do = append(p.do, fields)
}

func (p *process) handle(e event) {
	switch e.Event {
	case "start", "membership":
		p.update(e.Membership.Members)
	case "sent":
		p.act("transmit", action{"id": e.ID, "position": []int{p.incarnation, 0}, "stamp": p.incarnation})
	case "received":
		p.arrived(e)
	}
}

func (p *process) update(members []member) {
	failures, allUp := 0, true
	for _, it := range members {
		down := 0
		if !it.Up {
			down = 1
		}
		failures += max(it.Life+down-1, 0)
		allUp = allUp && it.Up
	}
	if failures > p.incarnation {
		p.incarnation, p.running = failures, false
		p.act("restore", action{"image": nil, "incarnation": failures})
		p.act("claim", action{"fact": "rolledBack", "to": []int{failures, 0}, "checkpoint": []int{0, 0}, "cause": "failure"})
	}
	if !p.running && allUp { // a message to a process that is down is lost
		p.running = true
		p.act("release", action{})
		early := p.early
		p.early = nil
		for _, message := range early {
			p.arrived(message)
		}
	}
}

func (p *process) arrived(e event) {
	switch {
	case e.Stamp < p.incarnation && !p.acceptsStale:
		p.act("dropStale", action{"id": e.ID})
	case e.Stamp > p.incarnation || !p.running:
		p.early = append(p.early, e)
	default:
		p.act("deliver", action{"id": e.ID, "payload": e.Payload})
	}
}

func main() {
	var p process
	events := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var e event
		if events.Decode(&e) != nil {
			return // standard input has ended
		}
		reply := action{"n": e.N}
		if e.Event == "hello" {
			reply["contract"] = 1
		} else {
			if e.Event == "start" { // a new life: nothing of an earlier one may remain
				p = process{acceptsStale: e.Parameters.AcceptsStale}
			}
			p.do = []action{}
			p.handle(e)
			reply["do"] = p.do
		}
		line, err := json.Marshal(reply)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
