// Stencil: a rod is heated at its left end. Each rank computes some of its cells, and exchanges the cells at its borders
// with its neighbours before each step.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type event struct {
	N          int
	Event      string
	Me, Ranks  int
	Parameters struct{ Columns, Steps int }
	State      *rod
	Messages   []struct {
		From    int
		Content float64
	}
}

type step map[string]any

// rod is the state of a rank: everything that a checkpoint must contain.
type rod struct {
	Cells []float64 `json:"cells"`
	Done  int       `json:"done"`
}

// rank is everything that never changes.
type rank struct {
	me, ranks, columns, steps int
}

func (r rank) begin() *rod { return &rod{Cells: make([]float64, r.columns)} }

func (r rank) neighbours() []int {
	var all []int
	for _, it := range []int{r.me - 1, r.me + 1} {
		if it >= 0 && it < r.ranks {
			all = append(all, it)
		}
	}
	return all
}

// next sends the cells at the borders, and waits for those of the neighbours.
func (r rank) next(s *rod) []step {
	if s.Done == r.steps {
		return []step{{"do": "finish", "result": s.Cells}}
	}
	steps := []step{{"do": "compute", "for": 20_000_000}}
	for _, to := range r.neighbours() {
		border := s.Cells[0]
		if to > r.me {
			border = s.Cells[r.columns-1]
		}
		steps = append(steps, step{"do": "send", "to": to, "content": border})
	}
	return append(steps, step{"do": "gather", "from": r.neighbours()})
}

// received computes one step from the cells of the neighbours.
func (r rank) received(s *rod, e event) {
	padded := append(append([]float64{s.Cells[0]}, s.Cells...), s.Cells[r.columns-1])
	if r.me == 0 {
		padded[0] = 100
	}
	for _, it := range e.Messages {
		if it.From < r.me {
			padded[0] = it.Content
		} else {
			padded[r.columns+1] = it.Content
		}
	}
	for i := range s.Cells {
		// Each product is rounded, so that all machines compute the same result.
		s.Cells[i] = float64(0.5*padded[i+1]) + float64(0.25*(padded[i]+padded[i+2]))
	}
	s.Done++
}

func main() {
	var r rank
	var s *rod
	events := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var e event
		if events.Decode(&e) != nil {
			return // standard input has ended
		}
		reply := step{"n": e.N}
		switch e.Event {
		case "hello":
			reply["contract"] = 1
		case "start":
			r = rank{e.Me, e.Ranks, e.Parameters.Columns, e.Parameters.Steps}
			s = r.begin()
		case "save":
			reply["state"] = s
		case "restore":
			if s = e.State; s == nil {
				s = r.begin()
			}
		case "next":
			reply["do"] = r.next(s)
		case "received":
			r.received(s, e)
			reply["progress"] = step{"done": s.Done, "total": r.steps}
		}
		line, err := json.Marshal(reply)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
