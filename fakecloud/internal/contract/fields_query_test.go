package contract_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// queryTest sends requests that differ from a valid one in one query parameter.
type queryTest struct {
	*world
	op               *contract.Operation
	broken, accepted int
}

// with returns the path of the operation with the required parameters, and with one parameter replaced, or removed if the value is
// absent.
func (q *queryTest) with(name, value string) string {
	q.Helper()
	target, err := url.Parse(q.withQuery(q.op, existingPath(q.world, q.op)))
	if err != nil {
		q.Fatal(err)
	}
	values := target.Query()
	values.Set(name, value)
	if value == absent {
		values.Del(name)
	}
	if name == "include_architecture_wildcard" {
		values.Set("architecture", "arm") // "Architecture filter must be specified."
	}
	target.RawQuery = values.Encode()
	return target.String()
}

func (q *queryTest) refuse(p contract.Parameter, value string) {
	q.Helper()
	response := q.send(q.op.Method, q.with(p.Name, value), nil)
	q.broken++
	if refused, _ := refuses(response, p.Name); !refused {
		q.Errorf("%s with %s=%s: %d %s, want the parameter refused", q.op.ID, p.Name, value, response.Code, response.Body)
	}
}

func (q *queryTest) accept(p contract.Parameter, value string) (answer string) {
	q.Helper()
	response := q.send(q.op.Method, q.with(p.Name, value), nil)
	q.accepted++
	if unread := response.Header().Get("X-Fakecloud-Unknown-Fields"); unread != "" {
		q.Errorf("%s: nothing reads %s", q.op.ID, unread)
	}
	if response.Code != q.op.Success {
		q.Errorf("%s with %s=%s: %d %s, but the document allows it", q.op.ID, p.Name, value, response.Code, response.Body)
	}
	return response.Body.String()
}

// check sends a parameter with values of another type, beyond and at its bounds, with each of its values, and absent.
func (q *queryTest) check(p contract.Parameter) {
	q.Helper()
	switch {
	case p.Required:
		q.refuse(p, absent)
	case p.Schema["default"] != nil:
		if value := fmt.Sprint(p.Schema["default"]); q.accept(p, absent) != q.accept(p, value) {
			q.Errorf("%s: %s=%s is not the same as no %s", q.op.ID, p.Name, value, p.Name)
		}
	default:
		q.accept(p, absent)
	}
	for _, value := range p.Enum {
		q.accept(p, value)
	}
	switch {
	case len(p.Enum) > 0:
		q.refuse(p, "no-such-value")
	case p.Type == "integer":
		for _, value := range []string{"text", "1.5", "-1", "9223372036854775808", "true"} {
			q.refuse(p, value)
		}
	case p.Type == "boolean":
		q.accept(p, "true")
		q.accept(p, "false")
		q.refuse(p, "text")
	case p.Name == "start" || p.Name == "end":
		q.refuse(p, "yesterday") // must be in RFC 3339 format
	}
	if maximum := p.Schema["maximum"]; maximum != nil {
		q.accept(p, fmt.Sprint(p.Schema["minimum"]))
		q.accept(p, fmt.Sprint(maximum))
		q.refuse(p, "0") // all minima are 1
		q.refuse(p, "9007199254740992")
	}
}

// TestContractEveryQueryParameter checks each query parameter of each operation, like the fields of bodies.
func TestContractEveryQueryParameter(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	document := contract.ForTest(t)
	recorder := contract.NewRecorder(document)
	w := newWorld(t, recorder)
	populate(w)
	parameters, broken, accepted := 0, 0, 0
	for _, op := range document.Operations() {
		if op.Removed {
			continue
		}
		q := &queryTest{world: w, op: op}
		for _, parameter := range op.Query {
			q.check(parameter)
		}
		parameters, broken, accepted = parameters+len(op.Query), broken+q.broken, accepted+q.accepted
	}
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	t.Logf("%d parameters, %d broken rules, %d allowed edges", parameters, broken, accepted)
}
