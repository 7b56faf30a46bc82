package recording

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

var update = flag.Bool("update", false, "write fields.tsv instead of comparing it")

// TestTheListOfFieldsIsTheDocuments compares fields.tsv with the API document of today and of July 2026: clients of both exist.
func TestTheListOfFieldsIsTheDocuments(t *testing.T) {
	contract.ForTest(t)
	path, err := contract.Find()
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]map[string]bool{} // values by part, path and class
	for _, options := range [][]contract.Option{nil, {contract.AsOf(time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC))},
		{contract.AsOf(time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC))}} {
		document, err := contract.Load(path, options...)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range document.Operations() {
			collect(lines, "request", "", op.RequestSchema())
			collect(lines, "response", "", op.ResponseSchema())
			for _, q := range op.Query {
				schema := q.Schema
				if schema == nil {
					schema = contract.Schema{"type": q.Type}
					for _, v := range q.Enum {
						schema["enum"] = append(list(schema["enum"]), v)
					}
				}
				collect(lines, "query", q.Name, schema)
			}
		}
	}
	var list bytes.Buffer
	before := ""
	for _, key := range sorted(lines) {
		path, _, _ := strings.Cut(key[strings.Index(key, "\t")+1:], "\t")
		if at := strings.Split(key, "\t")[0] + " " + path; at == before {
			t.Errorf("%s has two classes: one rule of byName must decide", at)
		} else {
			before = at
		}
		fmt.Fprintf(&list, "%s\t%s\n", key, strings.Join(sorted(lines[key]), " "))
	}
	if *update {
		if err := os.WriteFile("fields.tsv", list.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if list.String() != fieldList {
		t.Error("fields.tsv is not what the API document says: run `go test ./internal/recording -run TheListOfFields -update` in fakecloud, " +
			"and look at the class of each new field")
	}
}

// collect adds the fields of a schema.
func collect(lines map[string]map[string]bool, part, path string, schema contract.Schema) {
	for _, branch := range anys(schema["oneOf"]) {
		collect(lines, part, path, branch)
	}
	properties, _ := schema["properties"].(map[string]any)
	items, isList := schema["items"].(map[string]any)
	for name, property := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		collect(lines, part, at, property.(map[string]any))
	}
	if isList {
		at := path + ".*"
		if part == "response" && !strings.Contains(path, ".") {
			at = strings.TrimSuffix(strings.TrimPrefix(path, "next_"), "s")
		}
		collect(lines, part, at, items)
	}
	if _, branches := schema["oneOf"]; path == "" || branches || len(properties) > 0 || isList {
		return
	}
	c := classOf(part, path, schema)
	key := part + "\t" + path + "\t" + string(c.class)
	if lines[key] == nil {
		lines[key] = map[string]bool{}
	}
	for _, v := range c.values {
		lines[key][v] = true
	}
}

func anys(v any) (all []map[string]any) {
	list, _ := v.([]any)
	for _, entry := range list {
		all = append(all, entry.(map[string]any))
	}
	return all
}

type classed struct {
	class  class
	values []string
}

// byName are the classes of fields by the ends of their paths. The first that matches wins. "$1" is the part in parentheses.
var byName = []struct {
	path   *regexp.Regexp
	class  string
	values string
}{
	{regexp.MustCompile(`(^|\.)(root_password|password|wss_url|user_data|tsig_key|zonefile)$`), "secret", ""},
	{regexp.MustCompile(`(^|\.)(public_key|private_key|certificate)$`), "key", ""},
	{regexp.MustCompile(`(^|\.)labels$`), "labels", ""},
	{regexp.MustCompile(`(^|\.)(selector|label_selector)$`), "selector", ""},
	{regexp.MustCompile(`\.time_series$`), "series", ""},
	{regexp.MustCompile(`\.error\.message$`), "message", ""},
	{regexp.MustCompile(`(\.error\.code|\.command|\.category|resources\.\*\.type|used_by\.\*\.type)$`), "code", ""},
	{regexp.MustCompile(`(^|\.)format$`), "enum", "ext4 xfs"},
	{regexp.MustCompile(`(^|\.)(mac_address|fingerprint)$`), "hex", ""},
	{regexp.MustCompile(`records\.\*\.value$`), "record", ""},
	{regexp.MustCompile(`^rrset\.id$`), "rrset", ""},
	{regexp.MustCompile(`health_check\.http\.path$`), "path", ""},
	{regexp.MustCompile(`(rules\.\*\.port|status_codes\.\*|backup_window)$`), "pattern", ""},
	{regexp.MustCompile(`(^|\.)(gross|net|vat_rate|step)$`), "number", ""},
	{regexp.MustCompile(`^(start|end)$`), "time", ""},
	// Ids.
	{regexp.MustCompile(`(resources|used_by)\.\*\.id$|^member\.id$`), "id:?type", ""},
	{regexp.MustCompile(`(^|\.)assignee_id$`), "id:?assignee_type", ""},
	{regexp.MustCompile(`(^|\.)vswitch_id$`), "id:vswitch", ""},
	{regexp.MustCompile(`(^|\.)(bound_to|created_from\.id)$`), "id:server", ""},
	{regexp.MustCompile(`public_net\.ipv[46](\.id)?$`), "id:primary_ip", ""},
	{regexp.MustCompile(`(^|\.)home_location\.id$`), "id:location", ""},
	{regexp.MustCompile(`(available|available_for_migration|supported)\.\*$`), "id:server_type", ""},
	{regexp.MustCompile(`^recommendation$`), "id:datacenter", ""},
	{regexp.MustCompile(`server_type\.locations\.\*\.id$`), "id:location", ""},
	{regexp.MustCompile(`(?:^|\.)([a-z_]+?)s(?:\.\*)\.id$`), "id:$1", ""},
	{regexp.MustCompile(`(?:^|\.)([a-z_]+)\.id$`), "id:$1", ""},
}

// catalogues are the parts of answers that only the catalogue decides. references are names of requests that may also be ids.
var (
	catalogues = regexp.MustCompile(`(^|\.)(location|home_location|datacenter|server_type|load_balancer_type|iso|pricing)\.`)
	references = regexp.MustCompile(`^(location|home_location|datacenter|server_type|load_balancer_type|iso|image)$`)
	integerID  = regexp.MustCompile(`(?:^|\.)(server|network|volume|firewall|placement_group|ssh_key|load_balancer|certificate|` +
		`floating_ip|zone)(s?)(\.\*)?$`)
	zoneNames = regexp.MustCompile(`(^|\.)network_zone$|\.prices\.\*\.location$|^image\.(name|description|os_flavor|os_version)$|` +
		`\.image\.(name|description|os_flavor|os_version)$`)
)

// classOf returns the class of a field. Without a rule, the field is a text and gets a pseudonym.
func classOf(part, path string, schema contract.Schema) classed {
	kind := fmt.Sprint(schema["type"])
	isText, isNumber := strings.Contains(kind, "string"), strings.Contains(kind, "integer") || strings.Contains(kind, "number")
	for _, rule := range byName {
		if m := rule.path.FindStringSubmatchIndex(path); m != nil {
			c := class(rule.path.ExpandString(nil, rule.class, path, m))
			if strings.HasPrefix(string(c), classID) && !isNumber && part != "query" {
				break
			}
			return classed{c, strings.Fields(rule.values)}
		}
	}
	if part == "query" {
		if schema["enum"] == nil && (path == "sort" || path == "status" || path == "type") {
			return classed{class: classEnum} // other operations name the values
		}
		if m := map[string]class{"id": "id:action", "bound_to": "id:server"}[path]; m != "" {
			return classed{class: m}
		}
	}
	var values []string
	for _, v := range list(schema["enum"]) {
		if v != nil {
			values = append(values, fmt.Sprint(v))
		}
	}
	switch m := references.FindString(path); {
	case m != "" && part == "request":
		return classed{classPublic, []string{strings.TrimPrefix(m, "home_")}}
	case path == "ssh_keys.*" && part == "request":
		return classed{classText, []string{"ssh_key"}}
	case len(values) > 0:
		return classed{classEnum, values}
	case isNumber && integerID.MatchString(path):
		return classed{class: class(classID + integerID.FindStringSubmatch(path)[1])}
	case kind == "boolean":
		return classed{class: classBool}
	case isNumber:
		return classed{class: classNumber}
	case schema["format"] == "date-time":
		return classed{class: classTime}
	case isText && (part == "response" && catalogues.MatchString(path) || zoneNames.MatchString(path)):
		return classed{class: classPublic}
	case strings.HasSuffix(path, ".type"):
		return classed{class: classCode}
	case kind == "object", kind == "array":
		return classed{} // empty ones pass only
	}
	return classed{class: classText}
}

// TestSecretFieldsAreSecret looks for fields with names that speak of secrets.
func TestSecretFieldsAreSecret(t *testing.T) {
	suspicious := regexp.MustCompile(`(password|secret|token|private_key|public_key|user_data|tsig_key|credential|wss|zonefile)$`)
	found := 0
	for line := range strings.SplitSeq(strings.TrimSpace(fieldList), "\n") {
		cells := strings.Split(line, "\t")
		if !suspicious.MatchString(cells[1]) {
			continue
		}
		found++
		if !slices.Contains([]class{classSecret, classKey}, class(cells[2])) {
			t.Errorf("%s %s is of the class %q", cells[0], cells[1], cells[2])
		}
	}
	if found < 10 {
		t.Errorf("only %d fields hold secrets", found)
	}
}
