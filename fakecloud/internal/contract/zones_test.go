package contract_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func smallZone(_ *world, name string) object {
	return object{"name": name + ".example", "mode": "primary"}
}

// zoneRecords has a record of each type.
var zoneRecords = map[string]string{
	"A": "198.51.100.1", "AAAA": "2001:db8::1", "CAA": `0 issue "letsencrypt.org"`, "CNAME": "www.example.net.",
	"DS": "12345 13 2 49fd46e6c4b45c55d4ac", "HINFO": `"PC" "Linux"`, "HTTPS": "1 . alpn=h2,h3", "MX": "10 mail", "NS": "ns.example.net.",
	"PTR": "host.example.net.", "RP": "admin.example.net. .", "SRV": "0 5 5060 sip.example.net.", "SVCB": "1 svc.example.net. port=8443",
	"TLSA": "3 1 1 0c72ac70b745ac19998811b131d662c9ac69dbdbe7cb23e5b514b56664c5d3d6", "TXT": `"v=spf1 -all" "second; part"`,
}

func records(values ...string) []any {
	var all []any
	for _, v := range values {
		all = append(all, object{"value": v})
	}
	return all
}

func populateZones(w *world) {
	w.Helper()
	var sets []any
	for kind, value := range zoneRecords {
		sets = append(sets, object{"name": strings.ToLower(kind), "type": kind, "ttl": 300, "labels": object{"env": "test"},
			"records": []any{object{"value": value, "comment": "the only one"}}})
	}
	for _, status := range []string{"valid", "partially-valid", "invalid", "lame"} {
		w.create("zone", "/zones", object{"name": status + ".example", "mode": "primary"})
	}
	w.create("zone", "/zones", object{"name": "secondary.example", "mode": "secondary", "primary_nameservers": []any{
		object{"address": "198.51.100.1", "port": 5353}, object{"address": "2001:db8::1"},
		object{"address": "198.51.100.2", "tsig_key": "c2VjcmV0", "tsig_algorithm": "hmac-sha256"},
		object{"address": "198.51.100.3", "tsig_key": "c2VjcmV0", "tsig_algorithm": "hmac-sha1"},
		object{"address": "198.51.100.4", "tsig_key": "c2VjcmV0", "tsig_algorithm": "hmac-md5"},
	}})
	w.create("zone", "/zones", object{"name": "example.com", "mode": "primary", "ttl": 7200, "labels": object{"env": "test"},
		"rrsets": sets})
	w.finish()
	w.clock.Step(time.Hour) // the delegations are checked
	w.act("/zones/example.com", "change_protection", object{"delete": true})
	w.act("/zones/example.com/rrsets/a/A", "change_protection", object{"change": true})
}

func zoneScenario(w *world) {
	created := w.do(201, "POST", "/zones", object{"name": "example.org", "mode": "primary", "labels": object{"a": "b"}})
	path := "/zones/" + idOf(created["zone"])
	if got := created["zone"].(object); at(got, "status") != "updating" ||
		fmt.Sprint(at(got, "record_count"), at(got, "ttl")) != "4 3600" || at(created, "action", "command") != "create_zone" {
		w.Errorf("new zone: %v", created)
	}
	w.finish()
	if got := at(w.do(200, "GET", "/zones/example.org", nil), "zone"); at(got.(object), "status") != "ok" {
		w.Errorf("zone: %v", got)
	}
	w.do(200, "GET", "/zones?mode=primary&name=example.org&label_selector=a&sort=name:desc", nil)
	w.do(200, "PUT", "/zones/example.org", object{"labels": object{"c": "d"}})
	w.refuse(404, "not_found: zone not found", "GET", "/zones/example.net", nil)
	w.refuse(404, "not_found: zone not found", "GET", "/zones/"+absentID, nil)
	w.refuse(409, "uniqueness_error", "POST", "/zones", object{"name": "example.org", "mode": "secondary"})
	nameserver := func(s object) object {
		return object{"name": "a.example", "mode": "secondary", "primary_nameservers": []any{s}}
	}
	for _, wrong := range []object{
		{"name": "example", "mode": "primary"}, {"name": "Example.com", "mode": "primary"}, {"name": "a.example.", "mode": "primary"},
		{"name": "a.example"}, {"name": "a.example", "mode": "tertiary"}, {"name": "a.example", "mode": "primary", "ttl": 59},
		{"name": "a.example", "mode": "primary", "rrsets": []any{object{"name": "www", "type": "A", "records": []any{}}}},
		nameserver(object{"address": "10.0.0.1"}), nameserver(object{"address": "198.51.100.1", "port": 0}),
		nameserver(object{"address": "198.51.100.1", "tsig_key": "?", "tsig_algorithm": "hmac-md5"}),
	} {
		w.refuse(422, "invalid_input", "POST", "/zones", wrong)
	}
	w.refuse(409, "uniqueness_error: RRSet(s) already exist(s)", "POST", "/zones", object{"name": "a.example", "mode": "primary",
		"rrsets": []any{object{"name": "@", "type": "NS", "records": records("ns.example.net.")}}})
	w.act(path, "change_ttl", object{"ttl": 600})
	w.refuseAction("invalid_input", path, "change_ttl", object{"ttl": 1})

	secondary := "/zones/" + w.create("zone", "/zones", object{"name": "second.example", "mode": "secondary"})
	w.finish()
	w.act(secondary, "change_primary_nameservers", object{"primary_nameservers": []any{object{"address": "198.51.100.1"}}})
	same := object{"primary_nameservers": []any{object{"address": "198.51.100.1"}, object{"address": "198.51.100.1"}}}
	w.refuseAction("invalid_input", secondary, "change_primary_nameservers", same)
	w.act(secondary, "change_ttl", object{"ttl": 600})
	w.refuseOtherMode()
	for name, body := range map[string]object{
		"change_protection": {"change": true}, "change_ttl": {"ttl": 60}, "set_records": {"records": records("198.51.100.1")},
		"add_records": {"records": records("198.51.100.1")}, "remove_records": {"records": records("198.51.100.1")},
		"update_records": {"records": []any{object{"value": "198.51.100.1", "comment": "c"}}},
	} {
		w.refuse(404, "not_found", "POST", "/zones/"+absentID+"/rrsets/www/A/actions/"+name, body)
		if name != "add_records" {
			w.refuse(404, "not_found", "POST", path+"/rrsets/www/A/actions/"+name, body)
		}
	}

	w.rrsets(path)
	w.zonefiles(path)
	w.act(path, "change_protection", object{"delete": true})
	w.refuse(423, "protected", "DELETE", path, nil)
	w.act(path, "change_protection", object{"delete": false})
	action := idOf(w.first(path+"/actions", "actions"))
	w.do(200, "GET", "/zones/example.org/actions/"+action, nil)
	w.do(200, "GET", "/zones/actions", nil)
	w.do(200, "GET", "/zones/actions/"+action, nil)
	w.do(201, "DELETE", "/zones/example.org", nil)
	w.refuse(423, "locked", "DELETE", path, nil)
	w.refuse(423, "locked", "PUT", path, object{"labels": object{}})
	w.refuse(423, "locked", "POST", path+"/rrsets", object{"name": "late", "type": "A", "records": records("198.51.100.1")})
	w.finish()
	w.refuse(404, "not_found", "GET", path, nil)
}

// rrsets goes through the operations on record sets.
func (w *world) rrsets(zone string) {
	w.Helper()
	serial := func() string {
		value := at(at(w.do(200, "GET", zone+"/rrsets/@/SOA", nil), "rrset", "records").([]any)[0].(object), "value").(string)
		return strings.Fields(value)[2]
	}
	before := serial()
	created := w.do(201, "POST", zone+"/rrsets", object{"name": "www", "type": "A", "labels": object{"a": "b"},
		"records": []any{object{"value": "198.51.100.1", "comment": "one"}}})
	if got := created["rrset"].(object); at(got, "id") != "www/A" || at(got, "ttl") != nil ||
		at(created, "action", "command") != "create_rrset" {
		w.Errorf("new RRSet: %v", created)
	}
	if after := serial(); after <= before {
		w.Errorf("the serial number is %s after %s", after, before)
	}
	path := zone + "/rrsets/www/A"
	w.refuse(409, "uniqueness_error: RRSet(s) already exist(s) map[fields:[map[name:name]]]", "POST", zone+"/rrsets",
		object{"name": "www", "type": "A", "records": records("198.51.100.2")})
	w.refuse(422, "invalid_input: (www, CNAME) conflicts with (www, A)", "POST", zone+"/rrsets",
		object{"name": "www", "type": "CNAME", "records": records("other")})
	w.act(zone+"/rrsets/alias/CNAME", "add_records", object{"records": records("other")})
	w.refuseAction("invalid_input: (alias, CNAME) conflicts with (alias, A)", zone+"/rrsets/alias/A", "add_records",
		object{"records": records("198.51.100.2")})
	const says = "duplicate value '198.51.100.1'" // cert-manager-webhook-hetzner issue 213
	const duplicate = "invalid_input: " + says + " map[fields:[map[messages:[" + says + "] name:%s[0].records[1].value]]]"
	w.refuse(422, fmt.Sprintf(duplicate, "rrsets"), "POST", zone+"/rrsets",
		object{"name": "x", "type": "A", "records": records("198.51.100.1", "198.51.100.1")})
	for _, wrong := range []object{
		{"name": "@", "type": "CNAME", "records": records("other")}, {"name": "x", "type": "A", "records": []any{}},
		{"name": "x.example.org", "type": "A", "records": records("198.51.100.1")},
		{"name": "X", "type": "A", "records": records("198.51.100.1")},
		{"name": "x", "type": "SPF", "records": records("a")}, {"name": "x", "type": "A", "ttl": 1, "records": records("198.51.100.1")},
		{"name": "x", "type": "A", "records": records("198.51.100.1"), "labels": object{"?": "x"}},
	} {
		w.refuse(422, "invalid_input", "POST", zone+"/rrsets", wrong)
	}
	w.act(path, "change_ttl", object{"ttl": 600})
	w.refuseAction(fmt.Sprintf(duplicate, "records"), path, "add_records", object{"records": records("198.51.100.1")})
	w.act(path, "add_records", object{"ttl": 600, "records": records("198.51.100.2")})
	w.refuseAction("invalid_input", path, "add_records", object{"ttl": 601, "records": records("198.51.100.3")})
	w.do(200, "POST", path+"/actions/update_records", object{"records": []any{object{"value": "198.51.100.2", "comment": "two"}}})
	w.refuseAction("invalid_input", path, "update_records", object{"records": []any{object{"value": "198.51.100.9", "comment": "two"}}})
	w.refuseAction(fmt.Sprintf(duplicate, "records"), path, "remove_records", object{"records": records("198.51.100.1", "198.51.100.1")})
	w.act(path, "remove_records", object{"records": records("198.51.100.1")})
	got := at(w.do(200, "GET", path, nil), "rrset").(object)
	if text := fmt.Sprint(at(got, "ttl"), at(got, "records")); text != "600 [map[comment:two value:198.51.100.2]]" {
		w.Errorf("RRSet: %s", text)
	}
	w.do(200, "PUT", path, object{"labels": object{"c": "d"}})
	w.do(200, "GET", zone+"/rrsets?name=www&type=A&label_selector=c&sort=created:desc&per_page=100", nil)
	w.act(path, "change_protection", object{"change": true})
	for name, body := range map[string]object{
		"change_ttl": {"ttl": nil}, "set_records": {"records": records("198.51.100.7")},
		"add_records": {"records": records("198.51.100.7")}, "remove_records": {"records": records("198.51.100.2")},
		"update_records": {"records": []any{object{"value": "198.51.100.2", "comment": ""}}},
	} {
		w.refuse(423, "protected", "POST", path+"/actions/"+name, body)
	}
	w.refuse(423, "protected", "DELETE", path, nil)
	w.refuse(423, "protected", "POST", zone+"/actions/import_zonefile", object{"zonefile": "x"})
	w.act(path, "change_protection", object{"change": false})
	w.act(path, "change_ttl", object{"ttl": nil})
	w.act(path, "set_records", object{"records": records("198.51.100.8", "198.51.100.9")})
	w.do(201, "POST", path+"/actions/remove_records", object{"records": records("198.51.100.8", "198.51.100.9")}) // at once
	w.refuse(404, "not_found", "GET", path, nil)
	w.act(zone+"/rrsets/new/TXT", "add_records", object{"records": records(`"is created"`)})
	w.refuseAction("invalid_input", zone+"/rrsets/new/SPF", "add_records", object{"records": records("x")})
	w.do(201, "DELETE", zone+"/rrsets/new/TXT", nil)
	w.refuse(422, "invalid_input", "DELETE", zone+"/rrsets/@/SOA", nil)
	w.finish()
}

// zonefiles imports a zone file and exports it again.
func (w *world) zonefiles(zone string) {
	w.Helper()
	const file = "$ORIGIN example.org.\n$TTL 7200\n@ IN SOA hydrogen.ns.hetzner.com. dns.hetzner.com. (\n\t2024010100 ; serial\n\t86400 " +
		"10800 3600000 3600 )\n" +
		"@\t10800 IN NS hydrogen.ns.hetzner.com.\n\t10800 IN NS oxygen.ns.hetzner.com. ; the owner is that of the line before\n@ IN " +
		"10800 NS helium.ns.hetzner.de.\nwww A 198.51.100.1\n*.dev.example.org. 60 TXT \"a; b\"\n"
	w.act(zone, "import_zonefile", object{"zonefile": file})
	exported := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	for _, want := range []string{"$ORIGIN\texample.org.\n$TTL\t7200\n", "@\tIN\tSOA\thydrogen",
		"@\t10800\tIN\tNS\thelium.ns.hetzner.de.\n", "www\tIN\tA\t198.51.100.1\n", "*.dev\t60\tIN\tTXT\t\"a; b\"\n"} {
		if !strings.Contains(exported, want) {
			w.Errorf("the exported zone file lacks %q:\n%s", want, exported)
		}
	}
	w.act(zone, "import_zonefile", object{"zonefile": exported})
	again := at(w.do(200, "GET", zone+"/zonefile", nil), "zonefile").(string)
	if strings.Count(again, "\n") != strings.Count(exported, "\n") {
		w.Errorf("imported and exported again:\n%s", again)
	}
	for _, wrong := range []string{
		"www A 198.51.100.1", strings.Replace(file, "$ORIGIN example.org.", "$ORIGIN example.com.", 1),
		strings.Replace(file, "www A", "www CH A", 1), strings.Replace(file, "www A", "www SPF", 1), strings.Replace(file, ")", "", 1),
		strings.Replace(file, "7200", "1", 1), strings.Replace(file, "helium", "argon", 1), file + "www.example.net. A 198.51.100.1",
	} {
		w.refuseAction("invalid_input", zone, "import_zonefile", object{"zonefile": wrong})
	}
	w.refuseAction(`invalid_input: www/A: "198.51.100" must be an IPv4 address`, zone, "import_zonefile",
		object{"zonefile": strings.Replace(file, "198.51.100.1", "198.51.100", 1)})
}

func (w walk) zones() {
	created := of(w.Zone.Create(w.ctx, hcloud.ZoneCreateOpts{
		Name: "one.example", Mode: hcloud.ZoneModePrimary, TTL: new(600), Labels: map[string]string{"a": "b"},
		RRSets: []hcloud.ZoneCreateOptsRRSet{{Name: "www", Type: hcloud.ZoneRRSetTypeA,
			Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.1"}}}},
	})).must(w)
	w.wait(created.Action)
	z := created.Zone
	read[hcloud.Zone](w, &w.Zone, z.ID, "one.example")
	of(w.Zone.Update(w.ctx, z, hcloud.ZoneUpdateOpts{Labels: map[string]string{}})).must(w)
	w.done(w.Zone.ChangeTTL(w.ctx, z, hcloud.ZoneChangeTTLOpts{TTL: 7200}))
	w.done(w.Zone.ChangeProtection(w.ctx, z, hcloud.ZoneChangeProtectionOpts{Delete: new(false)}))
	set := of(w.Zone.GetRRSetByNameAndType(w.ctx, z, "www", hcloud.ZoneRRSetTypeA)).must(w)
	w.done(w.Zone.AddRRSetRecords(w.ctx, set,
		hcloud.ZoneRRSetAddRecordsOpts{Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.2", Comment: "two"}}}))
	w.done(w.Zone.SetRRSetRecords(w.ctx, set, hcloud.ZoneRRSetSetRecordsOpts{Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.3"}}}))
	w.done(w.Zone.UpdateRRSetRecords(w.ctx, set,
		hcloud.ZoneRRSetUpdateRecordsOpts{Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.3", Comment: "three"}}}))
	w.done(w.Zone.ChangeRRSetTTL(w.ctx, set, hcloud.ZoneRRSetChangeTTLOpts{TTL: new(300)}))
	w.done(w.Zone.ChangeRRSetProtection(w.ctx, set, hcloud.ZoneRRSetChangeProtectionOpts{Change: new(false)}))
	of(w.Zone.UpdateRRSet(w.ctx, set, hcloud.ZoneRRSetUpdateOpts{Labels: map[string]string{"x": "y"}})).must(w)
	all, err := w.Zone.AllRRSets(w.ctx, z)
	if err != nil || len(all) != 3 {
		w.Errorf("RRSets: %v, %v", all, err)
	}
	if now := of(w.Zone.GetRRSetByID(w.ctx, z, "www/A")).must(w); *now.TTL != 300 || now.Records[0].Comment != "three" ||
		now.Labels["x"] != "y" {
		w.Errorf("RRSet: %+v", now)
	}
	file := of(w.Zone.ExportZonefile(w.ctx, z)).must(w).Zonefile
	w.done(w.Zone.ImportZonefile(w.ctx, z, hcloud.ZoneImportZonefileOpts{Zonefile: file}))
	w.done(w.Zone.RemoveRRSetRecords(w.ctx, set,
		hcloud.ZoneRRSetRemoveRecordsOpts{Records: []hcloud.ZoneRRSetRecord{{Value: "198.51.100.3"}}}))
	mx := of(w.Zone.CreateRRSet(w.ctx, z, hcloud.ZoneRRSetCreateOpts{Name: "@", Type: hcloud.ZoneRRSetTypeMX,
		Records: []hcloud.ZoneRRSetRecord{{Value: "10 mail"}}})).must(w)
	w.wait(mx.Action)
	w.wait(of(w.Zone.DeleteRRSet(w.ctx, mx.RRSet)).must(w).Action)
	actionsOf(w, w.Zone.Action.All, w.Zone.Action.AllFor, w.Zone.Action.GetByID, z)
	w.wait(of(w.Zone.Delete(w.ctx, z)).must(w).Action)
	second := of(w.Zone.Create(w.ctx, hcloud.ZoneCreateOpts{Name: "two.example", Mode: hcloud.ZoneModeSecondary})).must(w)
	w.wait(second.Action)
	w.done(w.Zone.ChangePrimaryNameservers(w.ctx, second.Zone, hcloud.ZoneChangePrimaryNameserversOpts{
		PrimaryNameservers: []hcloud.ZoneChangePrimaryNameserversOptsPrimaryNameserver{{Address: "198.51.100.1", Port: 5353}},
	}))
}
