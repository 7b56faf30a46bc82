package contract_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// The tokens of a world in addition to fakecloud.DefaultToken: a read-only token of the same project, and a token of
// another project.
const (
	readToken  = "contract-test-read-only"
	otherToken = "contract-test-other-project"
)

// actionTime is how long each action of a world takes, on the world's clock.
const actionTime = 2 * time.Second

// world is a new cloud for one scenario. Its clock stands still until the scenario steps it.
type world struct {
	*testing.T
	cloud   *fakecloud.Cloud
	handler http.Handler
	control http.Handler
	clock   *clocktesting.FakeClock
	token   string
	// serial, if not 0, makes the names and keys of new resources different from those of other serials.
	serial int
	// related are properties that all new resources of a kind get.
	related map[string]object
}

// reached, if not nil, records the exchanges of new worlds without a recorder.
var reached *contract.Recorder

// newWorld returns an empty cloud. It records the exchanges. Without a recorder, the test fails if the document of today does not allow an
// answer, unless the cloud shows an earlier day.
func newWorld(t *testing.T, recorder *contract.Recorder, change ...func(*fakecloud.Options)) *world {
	t.Helper()
	var options fakecloud.Options
	for _, f := range change {
		f(&options)
	}
	if _, err := contract.Find(); recorder == nil && err == nil && options.APIDate == "" {
		if recorder = reached; recorder == nil {
			recorder = validated(t)
		}
	}
	return bareWorld(t, recorder, change...)
}

// bareWorld is newWorld, but validates nothing without a recorder.
func bareWorld(t *testing.T, recorder *contract.Recorder, change ...func(*fakecloud.Options)) *world {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC))
	options := fakecloud.Options{Clock: clock, Actions: actionTime.String(), RandomSeed: 1, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&options)
	}
	simulated := fakecloud.New(options)
	t.Cleanup(simulated.Close)
	if _, err := simulated.AddToken(t.Context(), fakecloud.DefaultProject, readToken, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := simulated.AddProject(t.Context(), "other", otherToken); err != nil {
		t.Fatal(err)
	}
	handler := simulated.Handler()
	if recorder != nil {
		handler = recorder.Middleware(handler)
	}
	return &world{
		T: t, cloud: simulated, handler: handler, control: simulated.ControlHandler(), clock: clock, token: fakecloud.DefaultToken,
	}
}

// validated returns a recorder whose test fails if the document of today does not allow an answer.
func validated(t *testing.T) *contract.Recorder {
	t.Helper()
	recorder := contract.NewRecorder(contract.ForTest(t))
	// The real API gives no details about records of an update: see TestAnUpdateOfARecordSetDoesNotTakeRecords.
	recorder.Ignore(func(r *http.Request, status int) bool {
		return status == http.StatusUnprocessableEntity && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/rrsets/")
	})
	t.Cleanup(func() {
		if err := recorder.Err(); err != nil {
			t.Error(err)
		}
	})
	return recorder
}

// as returns the same world with another token.
func (w *world) as(token string) *world {
	other := *w
	other.token = token
	return &other
}

// object is a decoded JSON object.
type object = map[string]any

// send makes a request and returns the answer.
func (w *world) send(method, path string, body any) *httptest.ResponseRecorder {
	w.Helper()
	var content []byte
	switch body := body.(type) {
	case nil:
	case []byte:
		content = body
	default:
		var err error
		if content, err = json.Marshal(body); err != nil {
			w.Fatal(err)
		}
	}
	request := httptest.NewRequestWithContext(w.Context(), method, "/v1"+path, bytes.NewReader(content))
	request.Header.Set("Content-Type", "application/json")
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	response := httptest.NewRecorder()
	w.handler.ServeHTTP(response, request)
	return response
}

// do makes a request, checks the status and returns the decoded body.
func (w *world) do(status int, method, path string, body any) object {
	w.Helper()
	response := w.send(method, path, body)
	if response.Code != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, path, response.Code, response.Body, status)
	}
	var decoded object
	if response.Body.Len() > 0 {
		if err := json.Unmarshal(response.Body.Bytes(), &decoded); err != nil {
			w.Fatalf("%s %s: %v in %s", method, path, err, response.Body)
		}
	}
	return decoded
}

// refuse makes a request that must fail with the given status and code. ": ", the message and the details may follow the code.
func (w *world) refuse(status int, code, method, path string, body any) {
	w.Helper()
	failure, _ := w.do(status, method, path, body)["error"].(object)
	want, said, _ := strings.Cut(code, ": ")
	message := fmt.Sprint(failure["message"])
	if failure["code"] != want || said != "" && said != message && said != fmt.Sprint(message, " ", failure["details"]) {
		w.Errorf("%s %s: %v: %s %v, want %s", method, path, failure["code"], message, failure["details"], code)
	}
}

// finish lets all running actions end.
func (w *world) finish() {
	for range 8 { // an action may start others
		w.clock.Step(actionTime)
		w.do(200, "GET", "/locations", nil)
	}
}

// create makes a resource and returns its id.
func (w *world) create(key, path string, body any) string {
	w.Helper()
	if fields, ok := body.(object); ok {
		body = w.distinct(key, fields)
	}
	return idOf(w.do(201, "POST", path, body)[key])
}

// distinct returns the body with the world's serial in its name, and with what relates it to others.
func (w *world) distinct(kind string, body object) object {
	if w.serial == 0 && w.related == nil {
		return body
	}
	body = maps.Clone(body)
	if w.serial != 0 {
		if name, ok := body["name"].(string); ok && kind == "zone" {
			body["name"] = fmt.Sprintf("s%d.%s", w.serial, name)
		} else if ok {
			body["name"] = fmt.Sprintf("%s-%d", name, w.serial)
		}
		if kind == "ssh_key" {
			body["public_key"] = keyOf(w.serial)
		}
	}
	maps.Copy(body, w.related[kind])
	return body
}

// keyOf returns a public key. Each number has another one.
func keyOf(serial int) string {
	key := append([]byte("\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"), make([]byte, 32)...)
	binary.BigEndian.PutUint64(key[len(key)-8:], uint64(serial))
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(key)
}

// act starts an action, reads its resource while it runs, and lets it end.
func (w *world) act(path, name string, body any) {
	w.Helper()
	w.do(201, "POST", path+"/actions/"+name, body)
	w.do(200, "GET", path, nil)
	w.finish()
	w.do(200, "GET", path, nil)
}

// refuseAction starts an action that must be refused with 422 and the given code.
func (w *world) refuseAction(code, path, name string, body any) {
	w.Helper()
	w.refuse(422, code, "POST", path+"/actions/"+name, body)
}

func idOf(resource any) string {
	fields, _ := resource.(object)
	if text, ok := fields["id"].(string); ok {
		return text
	}
	id, _ := fields["id"].(float64)
	return fmt.Sprintf("%.0f", id)
}

// list returns the entries of a list.
func (w *world) list(path, key string) []any {
	w.Helper()
	entries, _ := w.do(200, "GET", path, nil)[key].([]any)
	return entries
}

// first returns the first entry of a list. The list must not be empty.
func (w *world) first(path, key string) object {
	w.Helper()
	entries := w.list(path, key)
	if len(entries) == 0 {
		w.Fatalf("%s: %s is empty", path, key)
	}
	return entries[0].(object)
}

// at returns the value at a path of keys in an object.
func at(in object, keys ...string) any {
	var value any = in
	for _, key := range keys {
		inner, _ := value.(object)
		value = inner[key]
	}
	return value
}

var pathParameter = regexp.MustCompile(`\{[^}]+\}`)

// absentID is an id that no resource has.
const absentID = "4999999999999999"

// absentPath returns the path of an operation on a resource that does not exist.
func absentPath(op *contract.Operation) string {
	return pathParameter.ReplaceAllString(op.Path, absentID)
}

// existingPath returns the path of an operation on the first resource of its kind, with the latest action of that resource.
// If there is no such resource, it returns absentPath.
func existingPath(w *world, op *contract.Operation) string {
	w.Helper()
	path := op.Path
	for strings.Contains(path, "{") {
		parent, rest, _ := strings.Cut(path, "/{")
		_, rest, _ = strings.Cut(rest, "}")
		rest = strings.TrimPrefix(rest, "/{rr_type}") // the id of an RRSet has its name and type
		collection := parent
		if collection == "/actions" {
			collection = "/servers/actions"
		}
		var answer object
		if err := json.Unmarshal(w.send("GET", collection+"?sort=id:desc", nil).Body.Bytes(), &answer); err != nil {
			w.Fatal(err)
		}
		id := absentID
		for _, entries := range answer {
			if entries, ok := entries.([]any); ok && len(entries) > 0 {
				id = idOf(entries[0])
			}
		}
		path = parent + "/" + id + rest
	}
	return path
}

// withQuery adds the required query parameters to the path of an operation.
func (w *world) withQuery(op *contract.Operation, path string) string {
	var pairs []string
	for _, parameter := range op.Query {
		switch {
		case !parameter.Required:
		case parameter.Name == "start":
			pairs = append(pairs, "start="+w.hoursAgo(2))
		case parameter.Name == "end":
			pairs = append(pairs, "end="+w.hoursAgo(0))
		case len(parameter.Enum) > 0:
			pairs = append(pairs, parameter.Name+"="+parameter.Enum[0])
		default:
			pairs = append(pairs, parameter.Name+"=1")
		}
	}
	if len(pairs) == 0 {
		return path
	}
	return path + "?" + strings.Join(pairs, "&")
}
