// Judges histories of the engines. A history is linearizable if its calls have one order that explains all their
// results. In it no call may come before another one that had ended before it began.
//
// Usage: linearizability FILE... Each file has one JSON object a line, as native/engine/src/testing/histories.rs
// and native/table/tests/snapshots.rs and transactions.rs write them.
// The checker is porcupine (Athalye; after Lowe, "Testing for linearizability", 2017). Prints one line a file, and then
// 'test result: N passed; N failed' as the other test runners do. A history that takes the checker too long is a
// failure.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	none     = -1        // no key, no value
	keep     = -3        // a key of "many" that is only read; a range, or a key of a bag, that tells nothing
	end      = 1<<47 - 1 // the rank behind the last
	touched  = 1 << 32   // what a touch adds to a value
	patience = 5 * time.Minute
)

type call struct {
	Thread     int
	Begin, End int64
	Name       string
	Keys       []int64 // ranks of the keys asked for
	New        []int64 // values written
	Seen       []int64 // values found, or ranks and values in turn; none if the call tells nothing
	Bound      int64   // the rank up to which a range tells all, exclusive
}

type history struct {
	Kind  string
	Keys  []int64 // the ranks of all keys
	Calls []call
}

// The keys' values, in the order of `Keys`.
type state [8]int64

// A model of the keys whose ranks are given.
func model(ranks []int64) porcupine.Model {
	place := map[int64]int{}
	for i, rank := range ranks {
		place[rank] = i
	}
	return porcupine.Model{
		Init: func() interface{} {
			var s state
			for i := range s {
				s[i] = none
			}
			return s
		},
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			s, c := before.(state), input.(call)
			switch c.Name {
			case "get":
				return s[place[c.Keys[0]]] == c.Seen[0], s
			case "swap", "many":
				for i, rank := range c.Keys {
					value := &s[place[rank]]
					if len(c.Seen) > 0 && *value != c.Seen[i] {
						return false, s
					}
					if c.New[i] != keep {
						*value = c.New[i]
					}
				}
				return true, s
			case "leave":
				s[place[c.Keys[0]]] = c.New[0]
				return true, s
			case "touch":
				value := &s[place[c.Keys[0]]]
				if *value != none && c.New[0] == 1 {
					*value += touched
				}
				return *value == c.Seen[0], s
			case "count":
				value := &s[place[c.Keys[0]]]
				if *value == none {
					return c.Seen[0] == none, s
				}
				*value += touched
				return *value/touched == c.Seen[0], s
			case "next":
				return s.between(ranks, c.Keys[0], c.Seen[0]) && s.holds(place, c.Seen[0], c.Seen[1]), s
			case "prev":
				from := c.Keys[0]
				if from == none {
					from = end
				}
				return s.between(ranks, c.Seen[0], from) && s.holds(place, c.Seen[0], c.Seen[1]), s
			}
			return s.tells(ranks, c), s
		},
	}
}

// The objects of a bag's keys, each a byte, in the order of insertion.
type bags [8]string

// A model of the keys of bags, or of duplicate bags. A call first removes all objects of a key, or those that equal some,
// and then adds others.
func bagModel(keys []int64, unique bool) porcupine.Model {
	place := map[int64]int{}
	for i, key := range keys {
		place[key] = i
	}
	return porcupine.Model{
		Init: func() interface{} { return bags{} },
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			s, c := before.(bags), input.(call)
			changes, seen := c.New, c.Seen
			take := func(list *[]int64) string {
				count := (*list)[0]
				values := make([]byte, count)
				for i := range values {
					values[i] = byte((*list)[1+i])
				}
				*list = (*list)[1+count:]
				return string(values)
			}
			for _, key := range c.Keys {
				objects := &s[place[key]]
				if seen[0] == keep {
					seen = seen[1:]
				} else if take(&seen) != *objects {
					return false, s
				}
				all := changes[0] == 1
				changes = changes[1:]
				gone, added := take(&changes), take(&changes)
				*objects = strings.Map(func(object rune) rune {
					if all || strings.ContainsRune(gone, object) {
						return -1
					}
					return object
				}, *objects)
				for _, object := range added {
					if !unique || !strings.ContainsRune(*objects, object) {
						*objects += string(object)
					}
				}
			}
			return true, s
		},
	}
}

// Whether no key stands between two ranks.
func (s state) between(ranks []int64, low, high int64) bool {
	for i, rank := range ranks {
		if low < rank && rank < high && s[i] != none {
			return false
		}
	}
	return true
}

// Whether the key of this rank, if it is one of the history's, has this value.
func (s state) holds(place map[int64]int, rank, value int64) bool {
	i, known := place[rank]
	return !known && value == none || known && value != none && s[i] == value
}

// Whether the result of a range agrees with the state.
func (s state) tells(ranks []int64, c call) bool {
	if c.Bound == keep {
		return true
	}
	down := c.Name == "below" || c.Name == "down_from"
	low, high := c.Keys[0], c.Bound
	if down {
		low, high = c.Bound, c.Keys[0]
		if high == none {
			high = end
		}
	}
	if c.Keys[0] != none && c.Name == "from" {
		low--
	}
	if c.Keys[0] != none && c.Name == "down_from" {
		high++
	}
	var expected []int64
	for i, rank := range ranks {
		if low < rank && rank < high && s[i] != none {
			expected = append(expected, rank, s[i])
		}
	}
	if len(expected) != len(c.Seen) {
		return false
	}
	for i := 0; i < len(expected); i += 2 {
		at := i
		if down {
			at = len(expected) - 2 - i
		}
		if expected[i] != c.Seen[at] || expected[i+1] != c.Seen[at+1] {
			return false
		}
	}
	return true
}

// Judges one history; one of calls on single keys, key by key.
func judge(h history) porcupine.CheckResult {
	parts := map[int64][]porcupine.Operation{}
	for _, c := range h.Calls {
		part := int64(none)
		if h.Kind == "one" {
			part = c.Keys[0]
		}
		operation := porcupine.Operation{ClientId: c.Thread, Input: c, Call: c.Begin, Return: c.End}
		parts[part] = append(parts[part], operation)
	}
	judging := model(h.Keys)
	if h.Kind == "bag" || h.Kind == "duplicate_bag" {
		judging = bagModel(h.Keys, h.Kind == "bag")
	}
	for _, part := range parts {
		if result := porcupine.CheckOperationsTimeout(judging, part, patience); result != porcupine.Ok {
			return result
		}
	}
	return porcupine.Ok
}

// How many calls overlap another one.
func overlapping(calls []call) int {
	n := 0
	for i, a := range calls {
		for j, b := range calls {
			if i != j && a.Thread != b.Thread && a.Begin < b.End && b.Begin < a.End {
				n++
				break
			}
		}
	}
	return n
}

// Judges a file, and returns whether all its histories are linearizable.
func check(name string) (bool, error) {
	file, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	histories, calls, overlaps, bad := 0, 0, 0, 0
	for lines.Scan() {
		var h history
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return false, err
		}
		histories++
		calls += len(h.Calls)
		overlaps += overlapping(h.Calls)
		if result := judge(h); result != porcupine.Ok {
			bad++
			if bad == 1 {
				fmt.Printf("history %d: %s\n%s\n", histories, result, lines.Text())
			}
		}
	}
	fmt.Printf("%s: %d histories of %d calls, %d of which overlap others; %d not linearizable\n",
		filepath.Base(name), histories, calls, overlaps, bad)
	return bad == 0 && histories > 0, lines.Err()
}

func main() {
	passed, failed := 0, 0
	for _, name := range os.Args[1:] {
		ok, err := check(name)
		if err != nil {
			fmt.Println(name, err)
		}
		if ok && err == nil {
			passed++
		} else {
			failed++
		}
	}
	fmt.Printf("test result: linearizability. %d passed; %d failed;\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}
