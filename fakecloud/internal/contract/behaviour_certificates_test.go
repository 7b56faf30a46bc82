package contract_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func managedCertificate(domain string) object {
	return object{"name": domain, "type": "managed", "domain_names": []string{domain}}
}

func TestAnUploadedCertificateIsTheDefaultAndTakesPEM(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := uploadedCertificate(w, "a")
	delete(body, "type")
	created := w.do(201, "POST", "/certificates", body)
	if at(created, "certificate", "type") != "uploaded" || at(created, "certificate", "certificate") != body["certificate"] {
		t.Errorf("certificate: %v", created)
	}
	if strings.Contains(fmt.Sprint(created), "PRIVATE KEY") {
		t.Errorf("the answer shows the key: %v", created)
	}
	for _, field := range []string{"certificate", "private_key"} {
		wrong := uploadedCertificate(w, "wrong")
		wrong[field] = "no PEM"
		w.refuse(422, "invalid_input", "POST", "/certificates", wrong)
	}
}

func TestAnUploadedCertificateIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := "/certificates/" + w.create("certificate", "/certificates", uploadedCertificate(w, "a"))
	before := w.do(200, "GET", path, nil)
	w.clock.Step(100 * 24 * time.Hour) // it has expired
	if after := w.do(200, "GET", path, nil); !reflect.DeepEqual(after, before) {
		t.Errorf("was %v, is %v", before, after)
	}
}

func TestOnlyAManagedCertificateHasAnAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	uploaded := w.do(201, "POST", "/certificates", uploadedCertificate(w, "uploaded"))
	managed := w.do(201, "POST", "/certificates", managedCertificate("example.com"))
	if action, present := uploaded["action"]; action != nil || !present {
		t.Errorf("action of an uploaded one: %v", action)
	}
	if at(managed, "action", "status") != "running" {
		t.Errorf("action of a managed one: %v", managed["action"])
	}
	none := "/certificates/" + idOf(uploaded["certificate"]) + "/actions"
	one := "/certificates/" + idOf(managed["certificate"]) + "/actions"
	if actions, ok := w.do(200, "GET", none, nil)["actions"].([]any); !ok || len(actions) != 0 {
		t.Errorf("actions of an uploaded one: %v", actions)
	}
	action := idOf(managed["action"])
	if got := idsIn(w.list(one, "actions")); len(got) != 1 || got[0] != action {
		t.Errorf("actions of a managed one: %v", got)
	}
	w.do(200, "GET", one+"/"+action, nil)
	w.refuse(404, "not_found", "GET", none+"/"+action, nil)
}

func TestOnlyAFailedManagedCertificateIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := func(body object) string {
		id := w.create("certificate", "/certificates", body)
		w.finish()
		return "/certificates/" + id
	}
	w.refuseAction("unsupported_error", path(uploadedCertificate(w, "uploaded")), "retry", nil)
	w.refuseAction("unsupported_error", path(managedCertificate("invalid.example.com")), "retry", nil)
	for _, domain := range []string{"www.ca-dns-validation-failed.invalid", "www.example.invalid"} {
		w.act(path(managedCertificate(domain)), "retry", nil)
	}
}

var issuanceErrors = []string{
	"caa_record_does_not_allow_ca", "ca_dns_validation_failed", "ca_too_many_authorizations_failed_recently",
	"ca_too_many_certificates_issued_for_registered_domain", "ca_too_many_duplicate_certificates",
	"could_not_verify_domain_delegated_to_zone", "dns_zone_not_found", "dns_zone_is_secondary_zone",
}

func TestIssuanceFailsWithEachCode(t *testing.T) {
	t.Parallel()
	for _, code := range issuanceErrors {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			newWorld(t, nil).failIssuance(code)
		})
	}
}

// failIssuance makes a certificate fail.
func (w *world) failIssuance(code string) {
	w.Helper()
	domain := "www." + strings.ReplaceAll(code, "_", "-") + ".invalid"
	path := "/certificates/" + w.create("certificate", "/certificates", managedCertificate(domain))
	w.finish()
	for range 2 { // a retry fails like the creation
		if got := at(w.do(200, "GET", path, nil), "certificate", "status", "error", "code"); got != code {
			w.Errorf("error of the certificate: %v, want %s", got, code)
		}
		if got := at(w.first(path+"/actions?sort=id:desc", "actions"), "error", "code"); got != code {
			w.Errorf("error of the action: %v, want %s", got, code)
		}
		w.act(path, "retry", nil)
	}
}

func TestOnlySnapshotsAndBackupsAreChangedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	system := "/images/" + idOf(w.first("/images?type=system", "images"))
	for method, body := range map[string]any{"DELETE": nil, "PUT": object{"description": "mine"}} {
		w.refuse(422, "unsupported_error", method, system, body)
	}
	server := "/servers/" + w.server(smallServer(w, "a"))
	w.act(server, "enable_backup", nil)
	for _, kind := range []string{"snapshot", "backup"} {
		image := w.imageOf(server, kind)
		w.do(200, "PUT", image, object{"description": "mine"})
		w.do(204, "DELETE", image, nil)
		w.refuse(404, "not_found", "GET", image, nil)
	}
}

// imageOf makes an image of a server and returns its path.
func (w *world) imageOf(server, kind string) string {
	w.Helper()
	id := idOf(w.do(201, "POST", server+"/actions/create_image", object{"type": kind})["image"])
	w.finish()
	return "/images/" + id
}

func TestAnUpdateOfAnImageChangesDescriptionTypeAndLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := "/servers/" + w.server(smallServer(w, "a"))
	w.act(server, "enable_backup", nil)
	image := w.imageOf(server, "backup")
	w.do(200, "PUT", image, object{"description": "mine", "type": "snapshot", "labels": object{"a": "b"}})
	got := w.do(200, "GET", image, nil)["image"].(object)
	if got["description"] != "mine" || got["type"] != "snapshot" || at(got, "labels", "a") != "b" || got["bound_to"] != nil {
		t.Errorf("image: %v", got)
	}
	w.refuse(422, "invalid_input", "PUT", image, object{"type": "backup"})
}

func TestOnlySnapshotsAreProtected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := "/servers/" + w.server(smallServer(w, "a"))
	w.act(server, "enable_backup", nil)
	system := "/images/" + idOf(w.first("/images?type=system", "images"))
	for _, image := range []string{system, w.imageOf(server, "backup")} {
		w.refuseAction("unsupported_error", image, "change_protection", object{"delete": true})
	}
	w.act(w.imageOf(server, "snapshot"), "change_protection", object{"delete": true})
}

func TestAServerUsesAnSSHKeyUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	key := w.create("ssh_key", "/ssh_keys", object{"name": "mine", "public_key": publicKey})
	for i, value := range []any{"mine", json.Number(key)} {
		body := smallServer(w, "node-"+string(rune('a'+i)))
		body["ssh_keys"] = []any{value}
		if password := w.do(201, "POST", "/servers", body)["root_password"]; password != nil {
			t.Errorf("a server with the key %v has the password %v", value, password)
		}
	}
	w.do(204, "DELETE", "/ssh_keys/"+key, nil)
	body := smallServer(w, "late")
	body["ssh_keys"] = []any{"mine"}
	w.refuse(422, "invalid_input", "POST", "/servers", body)
}
