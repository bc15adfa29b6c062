package topology

import "github.com/varve-io/varve/statestore"

// jobTurn is how many attempts of a table are sent before those of the next one.
// The jobs topic is worked on in its order, so this is how long a table waits for
// another that has many.
const jobTurn = 256

// jobTurns is what is to be sent, by table, each in its own order. Tables take
// turns: one whose plan is large does not hold up the others.
type jobTurns struct {
	of     map[int64][]statestore.JobNotice
	tables []int64 // those with something to send, the next one first
}

// add puts an attempt behind the others of its table.
func (q *jobTurns) add(n statestore.JobNotice) {
	if q.of == nil {
		q.of = map[int64][]statestore.JobNotice{}
	}
	if len(q.of[n.TableID]) == 0 {
		q.tables = append(q.tables, n.TableID)
	}
	q.of[n.TableID] = append(q.of[n.TableID], n)
}

// take is the turn of the table that waited longest, which then waits behind all
// others. It is empty where nothing is to be sent.
func (q *jobTurns) take() []statestore.JobNotice {
	if len(q.tables) == 0 {
		return nil
	}
	id := q.tables[0]
	q.tables = q.tables[1:]
	all := q.of[id]
	n := min(jobTurn, len(all))
	if n < len(all) {
		q.of[id] = all[n:]
		q.tables = append(q.tables, id)
	} else {
		delete(q.of, id)
	}
	return all[:n:n]
}

func (q *jobTurns) clear() { *q = jobTurns{} }
