package contract_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
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
	newWorld(t, nil).refuseOtherMode()
}

// refuseOtherMode tries each operation that needs the other mode of a zone.
func (w *world) refuseOtherMode() {
	w.Helper()
	one := records("198.51.100.1")
	set := w.zone("secondary") + "/rrsets/www/A"
	zone := strings.TrimSuffix(set, "/rrsets/www/A")
	w.refuseAction("incorrect_zone_mode", w.zone("primary"), "change_primary_nameservers", object{"primary_nameservers": []any{}})
	for operation, body := range map[string]any{
		"GET " + zone + "/zonefile":                  nil,
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
	if at(got[1].(object), "comment") != "spare" || at(got[1].(object), "value") != "198.51.100.2" ||
		at(got[0].(object), "comment") == "spare" {
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

// What clients assert against the document, or where it is silent (api-facts.md, "What unmodified clients showed in the second
// round").

func TestTheTTLOfASecondaryZoneChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("secondary")
	w.act(zone, "change_ttl", object{"ttl": 600})
	if got := at(w.do(200, "GET", zone, nil), "zone", "ttl"); got != 600.0 {
		t.Errorf("TTL %v", got)
	}
}

func TestAnUpdateOfARecordSetDoesNotTakeRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := w.recordSet(w.zone("primary"), "198.51.100.1")
	for _, wrong := range []any{records("198.51.100.2"), []any{}} {
		w.refuse(422, "invalid_input: can't update records with this endpoint <nil>", "PUT", set, object{"records": wrong})
	}
	w.do(200, "PUT", set, object{"labels": object{"a": "b"}, "records": nil})
	if got := w.valuesOf(set); !slices.Equal(got, []string{"198.51.100.1"}) {
		t.Errorf("records: %v", got)
	}
}

func TestANewZoneGetsWhatItsZoneFileLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const www, mail = "www A 198.51.100.1\n", "@ NS ns.example.net.\n"
	for name, file := range map[string]string{"a.example": www, "b.example": www + mail} {
		w.do(201, "POST", "/zones", object{"name": name, "mode": "primary", "zonefile": file})
		w.finish()
		soa := w.valuesOf("/zones/" + name + "/rrsets/@/SOA")
		if ns := w.valuesOf("/zones/" + name + "/rrsets/@/NS"); len(soa) != 1 || (name == "a.example") != (len(ns) == 3) {
			t.Errorf("%s: SOA %v, NS %v", name, soa, ns)
		}
		w.refuseAction("invalid_input", "/zones/"+name, "import_zonefile", object{"zonefile": file})
	}
}

func TestAZoneWithAProtectedRecordSetIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	set := w.recordSet(zone, "198.51.100.1")
	w.act(set, "change_protection", object{"change": true})
	for _, path := range []string{zone, set} {
		w.refuse(423, "protected: RRSet(s) is/are change protected", "DELETE", path, nil)
	}
	w.act(set, "change_protection", object{"change": false})
	w.do(201, "DELETE", zone, nil)
}

func TestADelegationIsCheckedAfterTheCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, want := range map[string]string{
		"shop.example": "unregistered []", "valid-shop.example": "valid [hydrogen.ns.hetzner.com. oxygen.ns.hetzner.com. " +
			"helium.ns.hetzner.de.]",
		"invalid.example": "invalid [ns1.example.net. ns2.example.net.]", "unknown.example": "unknown []",
	} {
		w.do(201, "POST", "/zones", object{"name": name, "mode": "primary"})
		w.finish()
		show := func() (status string, last any) {
			zone := w.do(200, "GET", "/zones/"+name, nil)["zone"].(object)
			if zone["registrar"] != "other" {
				t.Errorf("%s: registrar %v", name, zone["registrar"])
			}
			a := zone["authoritative_nameservers"].(object)
			return fmt.Sprint(a["delegation_status"], " ", a["delegated"]), a["delegation_last_check"]
		}
		if status, last := show(); status != "unknown []" || last != nil {
			t.Errorf("new zone %s: %s, last check %v", name, status, last)
		}
		w.clock.Step(time.Hour)
		if status, last := show(); status != want || last == nil {
			t.Errorf("%s: %s, last check %v, want %s", name, status, last, want)
		}
	}
}

func TestANegativeSelectorNeedsTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	zone := w.zone("primary")
	for name, labels := range map[string]object{"without": {}, "one": {"k": "1"}, "two": {"k": "2"}} {
		w.do(201, "POST", zone+"/rrsets", object{"name": name, "type": "A", "labels": labels, "records": records("198.51.100.1")})
		w.finish()
	}
	for _, selector := range []string{"k!=1", "k+notin+(1)", "k+notin+(1,3)"} {
		if got := idsIn(w.list(zone+"/rrsets?label_selector="+selector, "rrsets")); !slices.Equal(got, []string{"two/A"}) {
			t.Errorf("%s: %v", selector, got)
		}
	}
}

func TestNamesAndTextsOfZonesHaveLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	set := func(kind, value, comment string) object {
		r := []any{object{"value": value, "comment": comment}}
		return object{"name": "limits.example", "mode": "primary", "rrsets": []any{object{"name": "x", "type": kind, "records": r}}}
	}
	servers := func(n int, key string) object {
		var all []any
		for i := range n {
			all = append(all, object{"address": fmt.Sprint("198.51.100.", i), "tsig_key": key, "tsig_algorithm": "hmac-md5"})
		}
		return object{"name": "limits.example", "mode": "secondary", "primary_nameservers": all}
	}
	texts := func(n int) string { return strings.Repeat(`"`+strings.Repeat("x", 254)+`" `, n) } // 255 bytes each
	for _, wrong := range []object{
		{"name": "1.2.3.4", "mode": "primary"}, {"name": "example.1", "mode": "primary"},
		set("A", "198.51.100.1", strings.Repeat("c", 1025)), set("TXT", texts(257)+`"x"`, ""),
		set("TLSA", "3 1 1 "+strings.Repeat("ab", 1<<16), ""),
		servers(17, "c2VjcmV0"), servers(1, strings.Repeat("c2VjcmV0", 65)),
	} {
		w.refuse(422, "invalid_input", "POST", "/zones", wrong)
	}
	for _, right := range []object{set("TXT", texts(257), strings.Repeat("c", 1024)), servers(16, strings.Repeat("c2VjcmV0", 64))} {
		path := "/zones/" + w.create("zone", "/zones", right)
		w.finish()
		w.do(201, "DELETE", path, nil)
		w.finish()
	}
}
