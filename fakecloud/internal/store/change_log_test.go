package store

import "testing"

// A log has one record per resource, with the values before its first change and after its last one, whether it has few changes or many,
// and even if it is used again.
func TestALogHasOneRecordPerResource(t *testing.T) {
	t.Parallel()
	var log ChangeLog
	for _, n := range []int{3, fewChanges, 3 * fewChanges, 3, maxSpareChanges + 1, 2 * fewChanges} {
		for round := range 2 {
			for id := range n {
				if has := log.has(int64(id)); has != (round > 0) {
					t.Fatalf("%d resources, round %d: has(%d) is %t", n, round, id, has)
				}
				log.Record("row", int64(id), round, round+1)
			}
		}
		if len(log.Changes) != n || log.has(int64(n)) {
			t.Errorf("%d records of %d resources", len(log.Changes), n)
		}
		for i, c := range log.Changes {
			if (c != Change{"row", int64(i), 0, 2}) {
				t.Errorf("record %d of %d is %+v", i, n, c)
			}
		}
		log.Clear()
		if len(log.Changes) > 0 || log.has(0) {
			t.Errorf("an empty log has %+v", log.Changes)
		}
	}
}
