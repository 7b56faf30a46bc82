package contract

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Amendment is a change of the API that is newer than the document, or the correction of an error in the document.
type Amendment struct {
	Since  time.Time // the day of the change; zero for a correction
	What   string
	Source string

	// apply changes the document and returns how many places it changed. The document may have the change already.
	apply func(*Document) int
}

// Sources of the amendments.
const (
	fromFacts     = "api-facts.md, \"Newer than the document\""
	fromDelta     = "delta-2026-09.json (excerpt of the document of September 2026)"
	fromChangelog = "hcloud-go, CHANGELOG.md, "

	fromFourthRound = "api-facts.md, \"What raw calls show\""
	fromSecondRound = "api-facts.md, \"What unmodified clients showed in the second round\""
)

var correction time.Time

// Amendments returns the changes that [Parse] adds to the document, oldest first.
func Amendments() []Amendment {
	return []Amendment{
		{correction,
			"the parts of a successful answer (server, network, image, action, …) are required also where the document does not say so",
			"the document's own examples; other operations on the same resources require them", requireRootProperties},
		{correction, "creating a load balancer has the errors of adding its targets and its network",
			"inferred: creating includes add_target and attach_to_network, for which the document lists them", func(d *Document) int {
				changed := 0
				for _, code := range []string{
					"ip_not_in_vswitch_subnet", "ip_not_assigned_to_server", "load_balancer_public_interface_disabled",
					"network_has_no_vswitch_subnet", "no_subnet_available",
				} {
					changed += addCode(code, http.StatusUnprocessableEntity, "create_load_balancer")(d)
				}
				return changed
			}},
		{correction, "http of a load balancer's service has certificates and redirect_http also for the protocol http",
			"api-facts.md, \"What unmodified clients of several ages showed\"; hcloud-python reads both of each service that has http",
			addHTTPServiceFields},
		{correction, "an id in a request may be a text of digits",
			"api-facts.md, \"What unmodified clients showed in the second round\": hcloud-python 1.18, of Debian stable, sends them",
			acceptIDsAsTexts},
		{correction, "a body that is not JSON, of the creation of a server: 422 json_error",
			fromFourthRound + ": Cyclenerd/hcloud-github-runner issue 22",
			addCode("json_error", http.StatusUnprocessableEntity, "create_server")},
		{correction, "a placement group that is full: 422 placement_group_member_limit_reached",
			"terraform-provider-hcloud issue 1170 (a server is created); inferred for one that joins",
			addCode("placement_group_member_limit_reached", http.StatusUnprocessableEntity, "create_server",
				"add_server_to_placement_group")},
		{correction, "removing a firewall from a resource that it is not applied to: 422 firewall_already_removed",
			"hcloud-go, hcloud/error.go; the API's changelog of 2025-08-04, which it names",
			addCode("firewall_already_removed", http.StatusUnprocessableEntity, "remove_firewall_from_resources")},
		{correction, "a volume that is attached already: 422 volume_already_attached; one too many for a server: 422 limit_exceeded_error",
			"hcloud-go, hcloud/error.go (volume_already_attached); hetznercloud/csi-driver, internal/api/volume.go, expects both",
			func(d *Document) int {
				return addCode("volume_already_attached", http.StatusUnprocessableEntity, "attach_volume", "create_server")(d) +
					addCode("limit_exceeded_error", http.StatusUnprocessableEntity, "attach_volume", "create_volume", "create_server")(d)
			}},
		{correction, "the TTL of a secondary zone can be changed", fromSecondRound + ": assertion of a client",
			removeCode("incorrect_zone_mode", "change_zone_ttl")},
		{correction, "PUT of a record set with records: 422 invalid_input \"can't update records with this endpoint\", without details",
			fromSecondRound + "; ddclient issue 871, opnsense/plugins issue 5243",
			addCode("invalid_input", http.StatusUnprocessableEntity, "update_zone_rrset")},
		{correction, "deleting a zone with a protected record set: 423 protected",
			fromSecondRound + ": assertion of a client; the message: libdns/hetzner issue 14, caddy-dns/hetzner issue 28",
			addCode("protected", http.StatusLocked, "delete_zone")},
		{in2026(time.May, 1), "deleting an assigned Primary or Floating IP: 422 must_be_unassigned", fromFacts,
			addCode("must_be_unassigned", http.StatusUnprocessableEntity, "delete_primary_ip", "delete_floating_ip")},
		{in2026(time.May, 1), "all operations may answer resource_in_use, not only the deletion of firewalls",
			"api-facts.md, \"Envelope\": resource_in_use 422", addCode("resource_in_use", http.StatusUnprocessableEntity)},
		{in2026(time.July, 1), "servers and Primary IPs have no datacenter, in requests and responses",
			fromFacts + "; " + fromChangelog + "v2.45.0", removeDatacenter},
		{in2026(time.September, 11), "image.deprecation {announced, unavailable_after}, null for an image in service",
			fromFacts + "; " + fromChangelog + "v2.48.0", addImageDeprecation},
		{in2026(time.September, 22), "GET /networks/{id}/members", fromDelta + "; " + fromFacts, addNetworkMembers},
		{in2026(time.September, 23), "primary_ip.assignee_type is unassigned if there is no assignee",
			fromDelta + "; the day was first announced as August 1",
			extendAssigneeType("unassigned", func(d *Document) { d.knowsUnassigned = true })},
		{in2026(time.October, 1), "/datacenters removed: 410 deprecated_api_endpoint", fromFacts, removeDatacenterOperations},
		{in2026(time.October, 2), "unhealthy load balancer targets have detail, and http_status_code if the status is the reason",
			fromDelta + "; " + fromFacts, addHealthDetail},
		{in2026(time.October, 5), "a write with a read-only token answers 403 forbidden; token_readonly is removed",
			fromFacts + "; " + fromChangelog + "v2.51.0", func(d *Document) int {
				if _, present := d.codes["token_readonly"]; !present {
					return 0
				}
				delete(d.codes, "token_readonly")
				return 1
			}},
		{in2026(time.October, 5), "DELETE /load_balancers/{id} answers 201 with an action", fromFacts + "; " + fromChangelog + "v2.52.0",
			deleteLoadBalancerWithAction},
		{in2026(time.October, 5), "addresses of load balancers have id and blocked", fromDelta + "; " + fromFacts,
			addLoadBalancerAddressFields},
		{in2026(time.October, 5), "POST /load_balancers takes public_net {ipv4, ipv6}, ids of Primary IPs",
			fromFacts + "; " + fromChangelog + "v2.52.0", addLoadBalancerPublicNet},
		{in2026(time.October, 5), "creating a load balancer has the errors of its Primary IPs",
			"inferred: POST /servers takes Primary IPs, too, and the document lists them there", func(d *Document) int {
				return addCode("primary_ip_assigned", http.StatusUnprocessableEntity, "create_load_balancer")(d) +
					addCode("primary_ip_datacenter_mismatch", http.StatusUnprocessableEntity, "create_load_balancer")(d) +
					addCode("primary_ip_version_mismatch", http.StatusPreconditionFailed, "create_load_balancer")(d)
			}},
		{in2026(time.October, 5), "primary_ip.assignee_type is load_balancer for the address of a load balancer",
			"inferred: " + fromChangelog + "v2.52.0 makes Primary IPs available for load balancers; actions use the same name for the " +
				"type of the resource", extendAssigneeType("load_balancer", func(*Document) {})},
	}
}

func in2026(month time.Month, date int) time.Time {
	return time.Date(2026, month, date, 0, 0, 0, 0, time.UTC)
}

func number(value int64) json.Number { return json.Number(strconv.FormatInt(value, 10)) }

// find returns the operation with the given id. It works before the document is indexed.
func (d *Document) find(id string) *Operation {
	for _, op := range d.operations {
		if op.ID == id {
			return op
		}
	}
	return nil
}

// visitResponses calls f for each schema within each response.
func (d *Document) visitResponses(f func(Schema)) {
	for _, op := range d.operations {
		if op.response != nil {
			visit(op.response, f)
		}
	}
}

func hasProperties(schema Schema, names ...string) bool {
	for _, name := range names {
		if property(schema, name) == nil {
			return false
		}
	}
	return true
}

// setProperty declares a property. It returns 1 if the schema changed, else 0.
func setProperty(schema Schema, name string, declared Schema, isRequired bool) int {
	if property(schema, name) != nil {
		return 0
	}
	changed := maps.Clone(properties(schema))
	changed[name] = declared
	schema["properties"] = changed
	if isRequired {
		schema["required"] = append(slices.Clone(list(schema["required"])), name)
	}
	return 1
}

// addCode documents an error code for the given operations, or for all.
func addCode(code string, status int, operations ...string) func(*Document) int {
	return func(d *Document) int {
		changed := 0
		for _, op := range d.operations {
			if len(operations) > 0 && !slices.Contains(operations, op.ID) || op.codes.allows(code, status) {
				continue
			}
			op.codes[code] = append(op.codes[code], status)
			changed++
		}
		return changed
	}
}

// removeCode removes an error code from operations.
func removeCode(code string, operations ...string) func(*Document) int {
	return func(d *Document) int {
		changed := 0
		for _, id := range operations {
			if op := d.find(id); op != nil && op.codes[code] != nil {
				delete(op.codes, code)
				changed++
			}
		}
		return changed
	}
}

// requireRootProperties does not require the action for created certificates, Floating IPs, Primary IPs and placement
// groups: the document says that it may be missing there.
func requireRootProperties(d *Document) int {
	changed := 0
	for _, id := range []string{
		"get_server", "update_server", "delete_server", "create_server_image", "enable_server_rescue", "rebuild_server",
		"reset_server_password", "get_image", "update_image", "create_network", "get_network", "update_network", "create_firewall",
	} {
		op := d.find(id)
		if op == nil {
			continue
		}
		for _, name := range sortedKeys(properties(op.response)) {
			if !required(op.response, name) {
				op.response["required"] = append(slices.Clone(list(op.response["required"])), name)
				changed++
			}
		}
	}
	return changed
}

func removeDatacenter(d *Document) int {
	changed := 0
	remove := func(schema Schema) {
		isServer := hasProperties(schema, "server_type", "datacenter")
		isPrimaryIP := hasProperties(schema, "assignee_type", "datacenter")
		if !isServer && !isPrimaryIP {
			return
		}
		changed++
		kept := maps.Clone(properties(schema))
		delete(kept, "datacenter")
		schema["properties"] = kept
		schema["required"] = slices.DeleteFunc(slices.Clone(list(schema["required"])), func(name any) bool { return name == "datacenter" })
	}
	d.visitResponses(remove)
	for _, op := range d.operations {
		if op.request != nil {
			visit(op.request, remove)
		}
	}
	return changed
}

func extendAssigneeType(value string, then func(*Document)) func(*Document) int {
	return func(d *Document) int {
		changed := 0
		d.visitResponses(func(schema Schema) {
			kind := property(schema, "assignee_type")
			if kind == nil || slices.Contains(list(kind["enum"]), any(value)) {
				return
			}
			kind["enum"] = append(slices.Clone(list(kind["enum"])), value)
			changed++
		})
		then(d)
		return changed
	}
}

// idText is the pattern of an id that is a text.
const idText = "^[1-9][0-9]*$"

// acceptIDsAsTexts changes the fields of requests that hold the id of a resource: integers of 64 bits, and the Primary IPs of a new
// server. Where the document allows an id or a name, it allows texts already.
func acceptIDsAsTexts(d *Document) int {
	changed := 0
	accept := func(schema Schema) {
		types := list(schema["type"])
		if len(types) == 0 {
			types = []any{schema["type"]}
		}
		if !hasType(schema, "integer") || hasType(schema, "string") || schema["maximum"] != nil {
			return
		}
		schema["type"], schema["pattern"] = append(slices.Clone(types), "string"), idText
		changed++
	}
	for _, op := range d.operations {
		if op.request == nil {
			continue
		}
		visit(op.request, func(schema Schema) {
			if schema["format"] == "int64" {
				accept(schema)
			}
			if public := property(schema, "public_net"); public != nil {
				accept(property(public, "ipv4"))
				accept(property(public, "ipv6"))
			}
		})
	}
	return changed
}

func addHTTPServiceFields(d *Document) int {
	changed := 0
	ids := Schema{"type": "array", "items": Schema{"type": "integer", "format": "int64", "example": number(42)}}
	d.visitResponses(func(schema Schema) {
		if hasProperties(schema, "cookie_name", "timeout_idle") {
			changed += setProperty(schema, "certificates", ids, true)
			changed += setProperty(schema, "redirect_http", Schema{"type": "boolean", "example": false}, true)
		}
	})
	return changed
}

func addImageDeprecation(d *Document) int {
	changed := 0
	dateTime := Schema{"type": "string", "format": "date-time", "example": "2026-06-01T00:00:00Z"}
	deprecation := object(map[string]any{"announced": dateTime, "unavailable_after": dateTime})
	deprecation["type"] = []any{"object", "null"}
	d.visitResponses(func(schema Schema) {
		if hasProperties(schema, "os_flavor", "rapid_deploy", "deprecated") {
			changed += setProperty(schema, "deprecation", deprecation, true)
		}
	})
	return changed
}

func addNetworkMembers(d *Document) int {
	if d.find("list_network_members") != nil {
		return 0
	}
	networks := d.find("list_networks")
	if networks == nil {
		return 0
	}
	kinds := []any{"server", "load_balancer"}
	statuses := []any{"ok", "attaching", "detaching", "updating", "error"}
	address := Schema{"type": "string", "format": "ipv4", "example": "10.0.1.2"}
	member := object(map[string]any{
		"type": Schema{"type": "string", "enum": kinds},
		"id": Schema{"type": "integer", "format": "int64", "minimum": number(1), "maximum": number(1<<53 - 1),
			"example": number(42)},
		"ip":        address,
		"status":    Schema{"type": "string", "enum": statuses},
		"alias_ips": Schema{"type": "array", "items": address},
		"subnet":    Schema{"type": "string", "example": "10.0.1.0/24"},
	})
	query := []Parameter{
		{Name: "type", Array: true, Type: "string", Enum: []string{"server", "load_balancer"}},
		{Name: "subnet", Array: true, Type: "string"},
		{Name: "status", Array: true, Type: "string"},
		{Name: "sort", Array: true, Type: "string"},
		{Name: "page", Type: "integer"},
		{Name: "per_page", Type: "integer"},
	}
	for _, status := range statuses {
		query[2].Enum = append(query[2].Enum, status.(string))
	}
	for _, field := range []string{"id", "type", "status", "ip"} {
		query[3].Enum = append(query[3].Enum, field, field+":asc", field+":desc")
	}
	d.operations = append(d.operations, &Operation{
		Method:  http.MethodGet,
		Path:    "/networks/{id}/members",
		ID:      "list_network_members",
		Tag:     networks.Tag,
		Summary: "List Members of a Network",
		Success: http.StatusOK,
		Since:   in2026(time.September, 22),
		Query:   query,
		response: object(map[string]any{
			"members": Schema{"type": "array", "items": member},
			"meta":    property(networks.response, "meta"),
		}),
		codes: errorCodes{},
	})
	return 1
}

func removeDatacenterOperations(d *Document) int {
	changed := 0
	for _, id := range []string{"list_datacenters", "get_datacenter"} {
		if op := d.find(id); op != nil && !op.Removed {
			op.Removed, op.Success, op.response, op.responseExamples = true, http.StatusGone, nil, nil
			changed++
		}
	}
	return changed
}

// addHealthDetail splits a target's health by status: detail is "only present when status is unhealthy", http_status_code
// is present only if detail is unexpected_http_status.
func addHealthDetail(d *Document) int {
	changed := 0
	d.visitResponses(func(schema Schema) {
		health := property(schema, "health_status")
		items, ok := health["items"].(Schema)
		if !ok || items["oneOf"] != nil || !hasProperties(items, "listen_port", "status") {
			return
		}
		with := func(extra map[string]any, names ...any) Schema {
			branch := maps.Clone(items)
			branch["properties"] = maps.Clone(properties(items))
			maps.Copy(properties(branch), extra)
			branch["required"] = append(slices.Clone(list(items["required"])), names...)
			return branch
		}
		enum := func(values ...any) Schema { return Schema{"type": "string", "enum": values} }
		unhealthy := Schema{
			"discriminator": map[string]any{"propertyName": "detail"},
			"oneOf": []any{
				with(map[string]any{
					"status": enum("unhealthy"),
					"detail": enum("unspecified", "layer4_no_connection", "layer4_timeout", "layer7_timeout", "unexpected_http_content"),
				}, "detail"),
				with(map[string]any{
					"status":           enum("unhealthy"),
					"detail":           enum("unexpected_http_status"),
					"http_status_code": Schema{"type": "integer", "example": number(503)},
				}, "detail"),
			},
		}
		unhealthy["properties"] = map[string]any{"status": enum("unhealthy")} // for the outer choice
		unhealthy["additionalProperties"] = true
		health["items"] = Schema{
			"discriminator": map[string]any{"propertyName": "status"},
			"oneOf":         []any{with(map[string]any{"status": enum("healthy", "unknown")}), unhealthy},
		}
		changed++
	})
	return changed
}

func deleteLoadBalancerWithAction(d *Document) int {
	op, model := d.find("delete_load_balancer"), d.find("add_load_balancer_service")
	if op == nil || model == nil || op.Success == http.StatusCreated {
		return 0
	}
	op.Success, op.response = http.StatusCreated, object(map[string]any{"action": property(model.response, "action")})
	return 1
}

func addLoadBalancerAddressFields(d *Document) int {
	changed := 0
	d.visitResponses(func(schema Schema) {
		public := property(schema, "public_net")
		if public == nil || !hasProperties(schema, "load_balancer_type") {
			return
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			address := property(public, family)
			changed += setProperty(address, "id", Schema{"type": []any{"integer", "null"}, "format": "int64", "example": number(42)}, true)
			changed += setProperty(address, "blocked", Schema{"type": "boolean", "example": false}, true)
		}
	})
	return changed
}

func addLoadBalancerPublicNet(d *Document) int {
	op := d.find("create_load_balancer")
	if op == nil {
		return 0
	}
	id := Schema{"type": []any{"integer", "string"}, "pattern": idText, "format": "int64", "minimum": number(1), "example": number(42)}
	return setProperty(op.request, "public_net", Schema{
		"type":       "object",
		"properties": map[string]any{"ipv4": id, "ipv6": id},
	}, false)
}
