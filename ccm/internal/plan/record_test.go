package plan

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/validation"
)

// recorded returns the labels after the changes.
func recorded(labels map[string]string, changes ...func(*Record)) map[string]string {
	r := RecordOf(&hcloud.LoadBalancer{Labels: labels})
	for _, change := range changes {
		change(r)
	}
	return r.Encode()
}

func owns(uid string, ports ...int) func(*Record) {
	return func(r *Record) { r.Own(uid, ports, nil) }
}

func joins(uid string, ports ...int) func(*Record) {
	return func(r *Record) { r.Join(uid, ports) }
}

func sets(labels map[string]string) func(*Record) {
	return func(r *Record) { r.setUserLabels(labels) }
}

const ownerUID, guestUID, formerUID = "4e3c1f9a-0000-4000-8000-000000000001", "4e3c1f9a-0000-4000-8000-000000000002",
	"4e3c1f9a-0000-4000-8000-000000000003"

func fullRecord() *Record {
	r := &Record{Labels: map[string]string{LabelServiceUID: ownerUID, LabelLastOwner: ownerUID, LabelClusterUID: "c1", "color": "blue",
		"team": "web", "env": "prod", LabelGuest + guestUID: ""},
		Ports: []int{80, 443}, Guests: map[string][]int{guestUID: {8443}, formerUID: nil}, Shared: true,
		Common: commonSettings{By: "4e3c1f9a-0000-4000-8000-000000000009", Values: map[string]string{"algorithm-type": "least_connections",
			"labels": "team=web,env=prod", "shared-namespaces": "blue,green", "type": "lb21"}},
		UserLabels: []string{"env", "team"}, Lent: true, ForeignServers: []int64{7}}
	for port := range 14 {
		r.Ports = append(r.Ports, 30000+port)
	}
	return r
}

// What is written is read again, in labels that the API accepts, whatever there is to remember.
func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	large := fullRecord()
	for i := range 100 {
		large.Join(fmt.Sprintf("4e3c1f9a-0000-4000-8000-%012d", 100+i), []int{30000 + i, 40000 + i})
		large.ForeignServers = append(large.ForeignServers, int64(100000000+i))
	}
	for name, r := range map[string]*Record{"empty": {Labels: map[string]string{"color": "blue"}}, "full": fullRecord(), "large": large} {
		labels := r.Encode()
		for key, value := range labels {
			if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("%s: the API refuses the label %s=%s", name, key, value)
			}
		}
		got := RecordOf(&hcloud.LoadBalancer{Labels: labels})
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got %+v, want %+v", name, got, r)
		}
		if again := got.Encode(); !maps.Equal(again, labels) {
			t.Errorf("%s: written again: %v, want %v", name, again, labels)
		}
	}
}

// If a label of several is lost, changed or one too many, nothing counts, and the load balancer is not deleted with its Service.
func TestADamagedRecordRemembersNothingAndProtects(t *testing.T) {
	t.Parallel()
	labels := fullRecord().Encode()
	damages := map[string]func(map[string]string){
		"one more": func(l map[string]string) { l[labelRecord+"099"] = "aa" },
		"a later version": func(l map[string]string) {
			l[labelRecord+"001"] = strings.Replace(l[labelRecord+"001"], "1.", "2.", 1)
		},
	}
	for key := range labels {
		if strings.HasPrefix(key, labelRecord) {
			damages["without "+key] = func(l map[string]string) { delete(l, key) }
			damages["changed "+key] = func(l map[string]string) { l[key] = strings.ToUpper(l[key]) }
		}
	}
	for name, damage := range damages {
		lb := &hcloud.LoadBalancer{Labels: maps.Clone(labels)}
		damage(lb.Labels)
		r := RecordOf(lb)
		if want := (&Record{Labels: fullRecord().Labels, Found: true}); !reflect.DeepEqual(r, want) {
			t.Errorf("%s: got %+v, want %+v", name, r, want)
		}
		if now := RecordOf(&hcloud.LoadBalancer{Labels: r.Encode()}); !reflect.DeepEqual(now, r) {
			t.Errorf("%s: written anew: %+v", name, now)
		}
	}
}

func TestAGuestThatLeavesLeavesNothing(t *testing.T) {
	t.Parallel()
	r := fullRecord()
	before := r.Encode()
	r.Join("guest", []int{80})
	if maps.Equal(r.Encode(), before) {
		t.Fatal("it has not joined")
	}
	r.Leave("guest")
	if after := r.Encode(); !maps.Equal(after, before) || r.Guests["guest"] != nil {
		t.Errorf("got %v, want %v", after, before)
	}
}
