package contract_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// The contract tests (TestContract…) compare fakecloud with the official API document, see contract.Find. Without the
// document they are skipped, or fail if REQUIRE_API_DOCUMENT is set.

var update = flag.Bool("update", false, "write the coverage page "+coveragePage+" instead of comparing it, and the page of behaviour")

// coveragePage says how many operations of each resource are modelled, and what was corrected in the API document.
const coveragePage = "../../COVERAGE.md"

// unreachable are documented errors, "operation code", that no request can cause, and the reason.
var unreachable = map[string]string{
	"apply_firewall_to_resources incompatible_network_type": "a server without a public interface has a code of its own, and there is no " +
		"other reason",
	"create_server placement_error":           "there are no hosts, and a full group has a code of its own",
	"create_volume no_space_left_in_location": "the space in a location is not counted; a fault rule answers it",
}

// neverShown are documented values that no answer has, and the reason.
var neverShown = map[string]string{
	"/image/deleted":                    "a deleted image disappears at once, also from the servers made from it",
	"/image/status=unavailable":         "images are created or available",
	"/iso/type=private":                 "private ISOs are uploaded by Hetzner's support",
	"/load_balancer/ingoing_traffic":    "only a data plane adds up traffic",
	"/load_balancer/outgoing_traffic":   "only a data plane adds up traffic",
	"/load_balancer_type/deprecated":    "no type is deprecated today",
	"/load_balancer_type/deprecation":   "no type is deprecated today",
	"/member/status=error":              "a failed change is undone",
	"/server/ingoing_traffic":           "traffic is not added up",
	"/server/outgoing_traffic":          "traffic is not added up",
	"/server/status=unknown":            "the status is always known",
	"/server_type/storage_type=network": "no type has it today",
	"/zone/registrar=hetzner":           "every domain has another registrar",
	"/zone/registrar=unknown":           "every domain has another registrar",
	"/zone/status=error":                "a publication fails only by a fault rule",
}

// checkValues checks that the answers had all documented values, except neverShown.
func checkValues(t *testing.T, recorder *contract.Recorder, document *contract.Document) {
	t.Helper()
	unused := maps.Clone(neverShown)
	for _, value := range recorder.Unseen(document.Operations()) {
		if neverShown[value] == "" {
			t.Errorf("no answer had %s", value)
		}
		delete(unused, value)
	}
	for value := range unused {
		t.Errorf("%s was seen, or is not documented: remove it from neverShown", value)
	}
}

// onlyByFault are general error codes that fakecloud answers only by a fault rule.
var onlyByFault = []string{"maintenance", "server_error", "bad_gateway", "unavailable", "timeout"}

func TestContractWithoutTheRaceDetector(t *testing.T) {
	t.Parallel()
	longtest.Unraced(t)
}

func TestContractTheRoutesAreTheDocumentsOperations(t *testing.T) {
	t.Parallel()
	document := contract.ForTest(t)
	table := make(map[string]string)
	for _, route := range api.Routes() {
		if table[route.OperationID] != "" {
			t.Errorf("%s is a duplicate route", route.OperationID)
		}
		table[route.OperationID] = route.Method + " " + route.Pattern
	}
	for _, op := range document.Operations() {
		if got := table[op.ID]; got != op.String() {
			t.Errorf("%s: the route is %q, in the document %q", op.ID, got, op)
		}
		delete(table, op.ID)
	}
	for id, route := range table {
		t.Errorf("%s, %s, is not an operation of the document", id, route)
	}
}

// behaviours are tests that reach operations that no scenario does.
var behaviours = []func(*testing.T){
	TestPower, TestRescueModeDoesNotReboot, TestAChangeOfTypeStartsTheServerAndKeepsOrUpgradesTheDisk,
	TestARebuildTakesAnySystemImageSnapshotOrBackup, TestEachRequestForAConsoleHasANewURLAndPassword,
	TestANewRootPasswordNeedsARunningServer, TestDetachingNoISOSucceedsAtOnce, TestMetricsNeedATypeAndTakeSeveral,
	TestOnlySnapshotsAndBackupsAreChangedAndDeleted, TestDisablingBackupsDeletesThem, TestAServerJoinsAndLeavesAPlacementGroup,
	TestAServerGetsAnAddressOfASubnetInItsZone, TestTheRangeOfANetworkOnlyGrows, TestANetworkGetsSubnetsAndRoutesAtOnceOrLater,
	TestRoutesAndSubnetsAreDeleted, TestServicesAreAddedUpdatedAndDeleted, TestALoadBalancerIsInOneNetwork,
	TestThePublicInterfaceOfALoadBalancerIsSwitchedOffAndOn, TestTheAlgorithmOfALoadBalancerChanges, TestADeletedResourceIsGone,
	TestAProtectedResourceIsNotDeleted, TestReverseDNSChangesForEachKindOfAddress, TestActionsAreReadByTheirIDs,
	TestAnActionIsTheSameInEachOperationThatReadsIt, TestANewResourceCanBeReadByItsID, TestNewAliasIPsReplaceTheOldOnes,
}

// TestContractEveryAnswerConformsToTheDocument reaches each documented answer of each operation, and validates every
// answer.
func TestContractEveryAnswerConformsToTheDocument(t *testing.T) {
	document := contract.ForTest(t)
	recorder := contract.NewRecorder(document)
	t.Run("scenario", func(t *testing.T) {
		for name, about := range topics {
			if about.scenario == nil {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				about.scenario(newWorld(t, recorder))
			})
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for _, cases := range []refusals{
			errorsOfIPs(), errorsOfServers(), errorsOfFirewalls(), errorsOfLoadBalancers(), errorsOfTargets(),
		} {
			cases.run(t, recorder)
		}
	})
	reached = recorder
	t.Run("behaviour", func(t *testing.T) {
		for _, test := range behaviours {
			t.Run("", test)
		}
	})
	reached = nil
	t.Run("limits", func(t *testing.T) { limitScenario(t, recorder, document) })
	t.Run("every operation", func(t *testing.T) {
		w := newWorld(t, recorder)
		for _, op := range document.Operations() {
			refuseStrangers(w, document, op)
		}
	})
	t.Run("every operation with a body", func(t *testing.T) { refuseBodies(newWorld(t, recorder), document) })
	t.Run("every operation beyond the rate limit", func(t *testing.T) {
		w := newWorld(t, recorder, func(o *fakecloud.Options) { o.RateLimit = 1 })
		w.do(200, "GET", "/locations", nil)
		for _, op := range document.Operations() {
			w.refuse(429, "rate_limit_exceeded", op.Method, absentPath(op), nil)
		}
	})
	t.Run("every operation on a busy resource", func(t *testing.T) { refuseWhileBusy(newWorld(t, recorder), document) })
	t.Run("every name", func(t *testing.T) { refuseTakenNames(newWorld(t, recorder), document) })
	t.Run("every new name", func(t *testing.T) {
		w := newWorld(t, recorder)
		eachCreation(w, func(route api.Route, body object) {
			w.do(201, "POST", route.Pattern, body)
			w.refuse(409, "uniqueness_error", "POST", route.Pattern, body)
		})
	})
	t.Run("every list is filtered, sorted and paged", func(t *testing.T) {
		w := newWorld(t, recorder)
		populate(w)
		for _, op := range document.Operations() {
			if isList(op) {
				checkList(w, op)
			}
		}
	})
	t.Run("every fault", func(t *testing.T) { faultScenario(newWorld(t, recorder), document) })
	t.Run("paths and methods", func(t *testing.T) {
		w := newWorld(t, recorder)
		for _, path := range []string{"/nothing", "", "/", "/servers/1/2", "/servers/1/actions/2/3"} {
			w.refuse(404, "not_found", "GET", path, nil)
			w.as("").refuse(404, "not_found", "GET", path, nil) // the route is resolved before the token
		}
		for _, op := range document.Operations() {
			w.refuse(405, "method_not_allowed", "PATCH", absentPath(op), nil)
		}
	})
	if t.Failed() {
		return // the checks below would only repeat it
	}
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	checkReached(t, recorder, document)
	checkValues(t, recorder, document)
	checkCoveragePage(t, recorder)
	t.Logf("%d exchanges were validated", recorder.Exchanges())
}

// TestContractEachEarlierDayFollowsItsDocument checks the answers of Options.APIDate by the document of that day: what was
// removed later is there, and what was added later is not.
func TestContractEachEarlierDayFollowsItsDocument(t *testing.T) {
	t.Parallel()
	contract.ForTest(t)
	path, err := contract.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, day := range []time.Time{
		time.Date(2026, time.September, 10, 0, 0, 0, 0, time.UTC),
		time.Date(2026, time.September, 22, 0, 0, 0, 0, time.UTC),
	} {
		document, err := contract.Load(path, contract.AsOf(day))
		if err != nil {
			t.Fatal(err)
		}
		recorder := contract.NewRecorder(document)
		w := newWorld(t, nil, func(o *fakecloud.Options) { o.APIDate = day.Format(time.DateOnly) })
		w.handler = recorder.Middleware(w.handler)
		earlierDay(w)
		if err := recorder.Err(); err != nil {
			t.Errorf("%s: %v", day.Format(time.DateOnly), err)
		}
	}
}

// earlierDay sends requests whose answers changed on a day after 2026-09-10.
func earlierDay(w *world) {
	w.Helper()
	off := smallServer(w, "off")
	off["start_after_create"] = false
	server := json.Number(w.server(off))
	full := smallLoadBalancer(w, "old")
	full["services"] = []any{object{"protocol": "http"}}
	full["targets"] = []any{object{"type": "server", "server": object{"id": server}}}
	balancer := w.loadBalancer(full)
	w.clock.Step(5 * time.Minute) // until the health checks have failed
	if status := at(w.do(200, "GET", balancer, nil), "load_balancer",
		"targets").([]any)[0].(object)["health_status"].([]any)[0].(object)["status"]; status != "unhealthy" {
		w.Errorf("the target of a server that is off is %v, want unhealthy", status)
	}
	w.do(200, "GET", "/load_balancers", nil)
	w.do(200, "GET", "/images", nil)
	w.do(200, "GET", "/servers/"+server.String(), nil)
	w.do(200, "GET", "/datacenters/"+idOf(w.first("/datacenters", "datacenters")), nil)
	w.do(204, "DELETE", balancer, nil)
	w.as(readToken).refuse(401, "token_readonly", "POST", "/ssh_keys", object{"name": "one", "public_key": publicKey})
	ip := "/primary_ips/" + w.create("primary_ip", "/primary_ips", object{"name": "free", "type": "ipv4", "location": "fsn1"})
	if got := at(w.do(200, "GET", ip, nil), "primary_ip", "assignee_type"); got != "server" {
		w.Errorf("assignee_type without an assignee: %v", got)
	}
}

// checkReached checks that each modelled operation succeeded, that each documented error occurred, and that the valid
// requests of scenarios are valid by the document.
func checkReached(t *testing.T, recorder *contract.Recorder, document *contract.Document) {
	t.Helper()
	unused := maps.Clone(unreachable)
	for _, op := range document.Operations() {
		if state := recorder.State(op); state != contract.Implemented {
			t.Errorf("%s (%s): %s, want %s with %d", op.ID, op, state, contract.Implemented, op.Success)
		}
		for code, statuses := range document.ErrorCodes(op) {
			excuse := op.ID + " " + code
			delete(unused, excuse)
			for _, status := range statuses { // a code without a status is the error of an action
				if code == "resource_in_use" {
					continue // the amendment allows it everywhere; scenarios expect it for the right operations
				}
				if seen, excused := recorder.Saw(op, status, code), unreachable[excuse] != ""; seen == excused {
					t.Errorf("%s: %d %s was seen: %t, is in unreachable: %t", op.ID, status, code, seen, excused)
				}
			}
		}
	}
	for excuse := range unused {
		t.Errorf("%s is not documented: remove it from unreachable", excuse)
	}
	for code, statuses := range document.ErrorCodes(nil) {
		for _, status := range statuses {
			if !slices.ContainsFunc(append(document.Operations(), nil),
				func(op *contract.Operation) bool { return recorder.Saw(op, status, code) }) {
				t.Errorf("%d %s was not seen", status, code)
			}
		}
	}
	for _, exchange := range recorder.Undocumented() {
		t.Errorf("the document does not allow a scenario's request: %s", exchange)
	}
}

func checkCoveragePage(t *testing.T, recorder *contract.Recorder) {
	t.Helper()
	var page bytes.Buffer
	if err := recorder.WriteCoverage(&page); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(coveragePage, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	written, err := os.ReadFile(coveragePage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, page.Bytes()) {
		t.Errorf("%s is out of date: run `make coverage` and commit it\n%s", coveragePage, firstDifference(string(written), page.String()))
	}
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(before, after string) string {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(old), len(now)) {
		if old[i] != now[i] {
			return "- " + old[i] + "\n+ " + now[i]
		}
	}
	return "one text is a prefix of the other"
}

// refuseStrangers checks the errors that all operations share: no token, an unknown token, a write with a read-only token,
// and an id that does not exist.
func refuseStrangers(w *world, document *contract.Document, op *contract.Operation) {
	w.Helper()
	path := w.withQuery(op, absentPath(op))
	body, err := document.RequestBody(op, contract.Full)
	if err != nil {
		w.Fatal(err)
	}
	w.as("").refuse(401, "unauthorized", op.Method, path, body)
	w.as("unknown").refuse(401, "unauthorized", op.Method, path, body)
	if op.Removed {
		w.refuse(410, "deprecated_api_endpoint", op.Method, path, body)
		return
	}
	if op.Method != http.MethodGet {
		w.as(readToken).refuse(403, "forbidden", op.Method, path, body)
	}
	if strings.Contains(op.Path, "{id}") {
		w.refuse(404, "not_found", op.Method, path, body)
		w.refuse(404, "not_found", op.Method, w.withQuery(op, pathParameter.ReplaceAllString(op.Path, "no-number")), body)
	}
}

// refuseBodies sends each operation a body that is not JSON, one that is not an object, and one with a field of a wrong
// type. TestContractEveryFieldOfEveryBody checks all fields.
func refuseBodies(w *world, document *contract.Document) {
	w.Helper()
	populate(w)
	for _, op := range document.Operations() {
		if op.RequestSchema() == nil {
			continue
		}
		path := existingPath(w, op)
		status := 400
		if op.ID == "create_server" {
			status = 422 // see Amendments
		}
		w.refuse(status, "json_error", op.Method, path, []byte(`{"name": `))
		w.refuse(status, "json_error", op.Method, path, []byte(`[]`))
		cases, err := document.InvalidBodies(op)
		if err != nil {
			w.Fatal(err)
		}
		wrong := slices.IndexFunc(cases, func(c contract.Case) bool { return c.Field != "" && c.Kind == contract.WrongType })
		w.refuse(422, "invalid_input", op.Method, path, cases[wrong].Body)
	}
}

// faultScenario injects the general error codes that fakecloud does not answer by itself.
func faultScenario(w *world, document *contract.Document) {
	w.Helper()
	for _, code := range onlyByFault {
		statuses := document.ErrorCodes(nil)[code]
		if len(statuses) != 1 {
			w.Errorf("%s has the documented statuses %v", code, statuses)
			continue
		}
		if _, err := w.cloud.Faults().Add(w.Context(), fault.Rule{Effect: fault.APIError(code)}); err != nil {
			w.Fatal(err)
		}
		w.refuse(statuses[0], code, "GET", "/servers", nil)
		if err := w.cloud.Faults().Clear(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
}
