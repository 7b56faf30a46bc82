package contract_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// zone makes a zone and returns its path.
func (w *world) zone(mode string) string {
	w.Helper()
	path := "/zones/" + w.create("zone", "/zones", object{"name": mode + ".example", "mode": mode})
	w.finish()
	return path
}

// recordSet makes a record set in a zone and returns its path.
func (w *world) recordSet(zone string, values ...string) string {
	w.Helper()
	w.do(201, "POST", zone+"/rrsets", object{"name": "www", "type": "A", "records": records(values...)})
	w.finish()
	return zone + "/rrsets/www/A"
}

// valuesOf returns the values of a record set.
func (w *world) valuesOf(path string) []string {
	w.Helper()
	var values []string
	for _, record := range at(w.do(200, "GET", path, nil), "rrset", "records").([]any) {
		values = append(values, record.(object)["value"].(string))
	}
	return values
}

func TestOperationsThatNeedTheOtherModeOfAZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	one := records("198.51.100.1")
	set := w.zone("secondary") + "/rrsets/www/A"
	zone := strings.TrimSuffix(set, "/rrsets/www/A")
	w.refuseAction("incorrect_zone_mode", w.zone("primary"), "change_primary_nameservers", object{"primary_nameservers": []any{}})
	for operation, body := range map[string]any{
		"GET " + zone + "/zonefile":                  nil,
		"POST " + zone + "/actions/change_ttl":       object{"ttl": 600},
		"POST " + zone + "/actions/import_zonefile":  object{"zonefile": "x"},
		"GET " + zone + "/rrsets":                    nil,
		"POST " + zone + "/rrsets":                   object{"name": "www", "type": "A", "records": one},
		"GET " + set:                                 nil,
		"PUT " + set:                                 object{"labels": object{}},
		"DELETE " + set:                              nil,
		"POST " + set + "/actions/change_protection": object{"change": true},
		"POST " + set + "/actions/change_ttl":        object{"ttl": 600},
		"POST " + set + "/actions/set_records":       object{"records": one},
		"POST " + set + "/actions/add_records":       object{"records": one},
		"POST " + set + "/actions/remove_records":    object{"records": one},
		"POST " + set + "/actions/update_records":    object{"records": []any{object{"value": "198.51.100.1", "comment": "c"}}},
	} {
		method, path, _ := strings.Cut(operation, " ")
		w.refuse(http.StatusUnprocessableEntity, "incorrect_zone_mode", method, path, body)
	}
}

func TestANewZoneHasASOAAndThreeNameServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	var kinds []string
	for _, set := range w.list(zone+"/rrsets", "rrsets") {
		kinds = append(kinds, at(set.(object), "id").(string))
	}
	if !slices.Equal(kinds, []string{"@/NS", "@/SOA"}) {
		t.Errorf("record sets: %v", kinds)
	}
	assigned := at(w.do(200, "GET", zone, nil), "zone", "authoritative_nameservers", "assigned")
	if got := w.valuesOf(zone + "/rrsets/@/NS"); len(got) != 3 || fmt.Sprint(got) != fmt.Sprint(assigned) {
		t.Errorf("name servers %v, assigned %v", got, assigned)
	}
}

func TestAnUpdateOfAZoneChangesItsLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	w.do(200, "PUT", zone, object{"labels": object{"a": "b"}})
	if got := at(w.do(200, "GET", zone, nil), "zone", "labels", "a"); got != "b" {
		t.Errorf("label %v", got)
	}
}

func TestNewPrimaryNameserversReplaceTheOldOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("secondary")
	for _, address := range []string{"198.51.100.1", "198.51.100.2"} {
		w.act(zone, "change_primary_nameservers", object{"primary_nameservers": []any{object{"address": address}}})
		got := at(w.do(200, "GET", zone, nil), "zone", "primary_nameservers").([]any)
		if len(got) != 1 || at(got[0].(object), "address") != address {
			t.Errorf("primary name servers %v, want %s", got, address)
		}
	}
}

// TestTheTTLOfAZoneChanges looks at the exported zone: a record set without a TTL has none there, and takes that of the zone.
func TestTheTTLOfAZoneChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	set := w.recordSet(zone, "198.51.100.1")
	w.act(zone, "change_ttl", object{"ttl": 600})
	if got := at(w.do(200, "GET", zone, nil), "zone", "ttl"); got != 600.0 {
		t.Errorf("TTL %v", got)
	}
	if got := at(w.do(200, "GET", set, nil), "rrset", "ttl"); got != nil {
		t.Errorf("TTL of the record set: %v", got)
	}
	file := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	if !strings.Contains(file, "$TTL\t600\n") || !strings.Contains(file, "www\tIN\tA\t198.51.100.1\n") {
		t.Errorf("zone file:\n%s", file)
	}
}

func TestTheTTLOfARecordSetChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	for _, ttl := range []any{600.0, nil} {
		w.act(set, "change_ttl", object{"ttl": ttl})
		if got := at(w.do(200, "GET", set, nil), "rrset", "ttl"); got != ttl {
			t.Errorf("TTL %v, want %v", got, ttl)
		}
	}
}

func TestAnImportReplacesAllRecordSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	before := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	set := w.recordSet(zone, "198.51.100.1")
	w.act(zone, "import_zonefile", object{"zonefile": before + "mail\tIN\tA\t198.51.100.2\n"})
	w.refuse(404, "not_found", "GET", set, nil)
	if got := w.valuesOf(zone + "/rrsets/mail/A"); !slices.Equal(got, []string{"198.51.100.2"}) {
		t.Errorf("records: %v", got)
	}
}

func TestAnExportedZoneFileCanBeImported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	set := w.recordSet(zone, "198.51.100.1", "198.51.100.2")
	file := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	w.do(201, "DELETE", set, nil)
	w.finish()
	w.act(zone, "import_zonefile", object{"zonefile": file})
	if got := w.valuesOf(set); !slices.Equal(got, []string{"198.51.100.1", "198.51.100.2"}) {
		t.Errorf("records: %v", got)
	}
}

func TestAProtectedRecordSetIsNotImportedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	file := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	set := w.recordSet(zone, "198.51.100.1")
	w.act(set, "change_protection", object{"change": true})
	w.refuse(423, "protected", "POST", zone+"/actions/import_zonefile", object{"zonefile": file})
	w.act(set, "change_protection", object{"change": false})
	w.act(zone, "import_zonefile", object{"zonefile": file})
}

func TestARecordSetIsCreatedReadUpdatedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	set := w.recordSet(zone, "198.51.100.1")
	w.do(200, "PUT", set, object{"labels": object{"a": "b"}})
	got := w.do(200, "GET", set, nil)["rrset"].(object)
	if got["name"] != "www" || got["type"] != "A" || at(got, "labels", "a") != "b" {
		t.Errorf("record set: %v", got)
	}
	if ids := idsIn(w.list(zone+"/rrsets", "rrsets")); !slices.Contains(ids, "www/A") {
		t.Errorf("record sets: %v", ids)
	}
	w.do(201, "DELETE", set, nil)
	w.finish()
	w.refuse(404, "not_found", "GET", set, nil)
}

func TestAPageOfRecordSetsHasUpToAHundred(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	for i := range 101 {
		w.do(201, "POST", zone+"/rrsets", object{"name": fmt.Sprint("n", i), "type": "A", "records": records("198.51.100.1")})
		w.finish()
	}
	for size, want := range map[string]int{"100": 100, "101": 100, "51": 51} {
		if got := w.list(zone+"/rrsets?per_page="+size, "rrsets"); len(got) != want {
			t.Errorf("per_page %s: %d entries, want %d", size, len(got), want)
		}
	}
}

func TestAddedRecordsAreAppendedToANewOrAnOldRecordSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.zone("primary") + "/rrsets/new/A"
	w.refuse(404, "not_found", "GET", set, nil)
	var want []string
	for _, value := range []string{"198.51.100.2", "198.51.100.1"} {
		want = append(want, value)
		w.act(set, "add_records", object{"records": records(value)})
		if got := w.valuesOf(set); !slices.Equal(got, want) {
			t.Errorf("records %v, want %v", got, want)
		}
	}
}

func TestARecordSetWithoutRecordsIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1", "198.51.100.2")
	w.act(set, "remove_records", object{"records": records("198.51.100.1")})
	if got := w.valuesOf(set); !slices.Equal(got, []string{"198.51.100.2"}) {
		t.Errorf("records: %v", got)
	}
	w.do(201, "POST", set+"/actions/remove_records", object{"records": records("198.51.100.2")})
	w.finish()
	w.refuse(404, "not_found", "GET", set, nil)
}

func TestNewRecordsReplaceTheOldOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	w.act(set, "set_records", object{"records": records("198.51.100.2", "198.51.100.3")})
	if got := w.valuesOf(set); !slices.Equal(got, []string{"198.51.100.2", "198.51.100.3"}) {
		t.Errorf("records: %v", got)
	}
}

func TestAnUpdateOfRecordsChangesTheirComments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1", "198.51.100.2")
	w.do(200, "POST", set+"/actions/update_records", object{"records": []any{object{"value": "198.51.100.2", "comment": "spare"}}})
	got := at(w.do(200, "GET", set, nil), "rrset", "records").([]any)
	if at(got[1].(object), "comment") != "spare" || at(got[1].(object), "value") != "198.51.100.2" || at(got[0].(object), "comment") == "spare" {
		t.Errorf("records: %v", got)
	}
}

func TestAProtectedRecordSetIsNotChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	w.act(set, "change_protection", object{"change": true})
	w.refuse(423, "protected", "POST", set+"/actions/set_records", object{"records": records("198.51.100.2")})
	w.refuse(423, "protected", "DELETE", set, nil)
	w.act(set, "change_protection", object{"change": false})
	w.act(set, "set_records", object{"records": records("198.51.100.2")})
}
