//go:build unix

package contract_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// inventory is a world with as many resources of each kind. The collector is off, so that no request pays for it.
type inventory struct {
	*world
	document *contract.Document
	others   int               // of each kind
	hub      map[string]string // the resource of a kind that all servers are related to; empty for an unrelated inventory
}

// kindsOf lists the kinds of an inventory in an order that allows to make them.
var kindsOf = []string{
	"network", "ssh_key", "placement_group", "primary_ip", "certificate", "firewall", "load_balancer", "server", "volume", "floating_ip",
	"zone",
}

// newInventory makes n resources of each kind. If related, one firewall and one load balancer
// select all servers by a label, one zone has n record sets, and one server has had n actions.
func newInventory(t *testing.T, document *contract.Document, n int, related bool) *inventory {
	t.Helper()
	in := &inventory{world: bareWorld(t, nil, instant), document: document, others: n}
	in.serial = 1
	if related {
		in.relate(n)
	}
	for _, kind := range kindsOf {
		for range n {
			in.serial++
			if related && in.hub[kind] != "" && kind != "server" {
				break // the hub is enough
			}
			in.id(kind)
		}
	}
	for range n {
		in.do(201, "POST", "/servers/"+in.hubOr("server")+"/actions/change_protection", object{"delete": false, "rebuild": false})
	}
	return in
}

// relate makes what all others are related to. A network has at most 100 members, so that it is not among these.
func (in *inventory) relate(n int) {
	in.Helper()
	in.hub = map[string]string{
		"firewall": in.create("firewall", "/firewalls", object{"name": "hub", "rules": []any{sshRule},
			"apply_to": []any{toSelector("hub=x")}}),
	}
	balancer := smallLoadBalancer(in.world, "hub")
	balancer["services"] = []object{tcpService(8022)}
	balancer["targets"] = []object{{"type": "label_selector", "label_selector": object{"selector": "hub=x"}}}
	in.hub["load_balancer"] = in.create("load_balancer", "/load_balancers", balancer)
	in.related = map[string]object{"server": {"labels": object{"hub": "x"}}}
	sets := []object{{"name": "www", "type": "A", "records": records("198.51.100.1")}}
	for i := range n {
		sets = append(sets, object{"name": fmt.Sprint("host", i), "type": "A", "records": records("198.51.100.1")})
	}
	in.hub["zone"] = in.create("zone", "/zones", object{"name": "hub.example", "mode": "primary", "rrsets": sets})
	in.hub["server"] = string(in.id("server"))
}

func (in *inventory) hubOr(kind string) string {
	if in.hub[kind] == "" {
		in.serial++
		return string(in.id(kind))
	}
	return in.hub[kind]
}

// request returns a valid request of an operation among all others, and how to send it.
func (in *inventory) request(op *contract.Operation, makeSample func(*world) sample) func() int {
	in.Helper()
	in.serial++
	f := &fieldTest{T: in.T, document: in.document, op: op, sample: makeSample}
	collection, rest, one := strings.Cut(op.Path, "/{id}")
	// of the catalogue, or an action
	if before, _, _ := strings.Cut(op.Path, "/{"); op.RequestSchema() == nil && topics[before].simple == nil {
		path := in.withQuery(op, existingPath(in.world, op))
		return func() int { return in.send(op.Method, path, nil).Code }
	}
	path, body := f.prepareIn(in.world)
	if id := in.hub[strings.TrimSuffix(collection[1:], "s")]; one && id != "" && f.parented && op.Method != http.MethodDelete {
		path = collection + "/" + id + rest
	}
	return func() int { return in.send(op.Method, in.withQuery(op, path), body).Code }
}

// measure returns the least cost of some requests of an operation, and their last status.
func (in *inventory) measure(send func(*inventory) func() int) (c cost, status int) {
	for i := range 5 {
		request := send(in)
		now := costOf(func() { status = request() })
		if c = least(now, c); i == 0 {
			c = now
		}
	}
	return c, status
}

// noticeable is the cost that a request among many may have above one among few, for example for a longer way through a tree. A walk
// through all others takes at least so much CPU time.
var noticeable = cost{cpu: 100 * time.Microsecond, allocs: 300, bytes: 64 << 10}

const (
	fewOthers  = 50
	manyOthers = 1500
)

// TestCostAmongOthers compares the cost of each operation, and of each filter of a list, in each way, on one resource with few and with
// many others of each kind, first unrelated ones, then those that share a firewall, a load balancer and a zone. It has to be
// about the same. costExceptions has the others: their answer or change grows.
func TestCostAmongOthers(t *testing.T) {
	longtest.SkipRace(t)
	document := contract.ForTest(t)
	for _, related := range []bool{false, true} {
		name := map[bool]string{false: "unrelated", true: "related"}[related]
		few, many := newInventory(t, document, fewOthers, related), newInventory(t, document, manyOthers, related)
		t.Run(name, func(t *testing.T) {
			withoutCollector(t)
			operations := someOperations(t, document, 20)
			eachWay(t, func(t *testing.T, y *way) {
				c := comparison{T: t, of: y.name + " " + name, few: y.copyOf(t, few), many: y.copyOf(t, many)}
				for _, op := range operations {
					if !op.Removed {
						c.operation(op)
					}
				}
				logCovered(t, c.covered)
			})
		})
	}
}

// comparison compares requests among few and among many others.
type comparison struct {
	*testing.T
	of        string
	few, many *inventory
	covered   []string
}

// operation compares the requests of an operation.
func (c *comparison) operation(op *contract.Operation) {
	c.Helper()
	for i, makeSample := range samplesOf(op) {
		c.compare(fmt.Sprintf("%s %d", op.ID, i), func(in *inventory) func() int { return in.request(op, makeSample) })
	}
	for _, p := range op.Query {
		c.compare(op.ID+" "+p.Name, func(in *inventory) func() int { return in.filtered(op, p) })
	}
}

func (c *comparison) compare(what string, send func(*inventory) func() int) {
	c.Helper()
	name := c.of + " " + what
	was, status := c.few.measure(send)
	now, _ := c.many.measure(send)
	grew := now.exceeds(was, 2, 1.5, noticeable)
	for i := 0; i < 10 && grew != "" && matching(costExceptions, name) == ""; i++ {
		// again, so that a busy machine does not decide
		was2, _ := c.few.measure(send)
		now2, _ := c.many.measure(send)
		was, now = least(was, was2), least(now, now2)
		grew = now.exceeds(was, 2, 1.5, noticeable)
	}
	if grew != "" {
		judge(c.T, name, status, fmt.Sprintf("with %d instead of %d others: %s", manyOthers, fewOthers, grew))
	}
	c.covered = append(c.covered, fmt.Sprintf("%s: %d, %v → %v, %.0f → %.0f allocations", what, status, was.cpu, now.cpu,
		was.allocs, now.allocs))
}

// filtered returns a request of a list with one parameter that few entries match.
func (in *inventory) filtered(op *contract.Operation, p contract.Parameter) func() int {
	in.Helper()
	value := "198.51.100.77"
	switch {
	case len(p.Enum) > 0:
		value = p.Enum[0]
	case p.Name == "page":
		value = "2" // which fewOthers fill, too
	case p.Type == "integer":
		value = "7"
	case p.Name == "label_selector":
		value = "none=such"
	}
	path := in.withQuery(op, existingPath(in.world, op))
	separator := map[bool]string{false: "?", true: "&"}[strings.Contains(path, "?")]
	return func() int { return in.send(op.Method, path+separator+p.Name+"="+value, nil).Code }
}
