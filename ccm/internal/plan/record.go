package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Record is what the labels of a load balancer say. RecordOf reads them, and Encode writes them: nothing else does.
//
// Some labels stand for themselves, because people set them or the API finds load balancers by them: the owner (ownership.go) and
// the guests. All else is one text, in as many labels as it needs: record-001, record-002, … It begins with the version of
// its form and with a check of the rest, JSON in base32. If a person or another client has replaced only some of these labels, or has left
// only the owner's, nothing of it counts, and the load balancer outlives its Service.
type Record struct {
	// Labels are those that stand for themselves, and those of other clients.
	Labels map[string]string `json:"-"`
	// Ports are the listen ports of the owner, and Guests those of each guest by its UID. A guest stays here when a person removes its
	// label. A port is here before it is created and until it is deleted, so that a successor can finish the work of a process.
	Ports  []int            `json:"ports,omitempty"`
	Guests map[string][]int `json:"guests,omitempty"`
	// Shared is the owner's consent to guests.
	Shared bool `json:"shared,omitempty"`
	// Common are the settings of a load balancer that several Services share.
	Common commonSettings `json:"common,omitzero"`
	// UserLabels are the keys from the annotation labels. They are removed together with it.
	UserLabels []string `json:"labels,omitempty"`
	// Lent marks a load balancer that the annotation adopt names, and ForeignServers are its targets at that time that had no Node.
	Lent           bool    `json:"lent,omitempty"`
	ForeignServers []int64 `json:"servers,omitempty"`
	// Found marks one that was there before the Service got it by its name. It is the Service's like any other, but not the
	// CCM's to delete.
	Found bool `json:"found,omitempty"`
}

const labelRecord = labelPrefix + "record-"

var recordEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// RecordOf returns what the labels of the load balancer say; nil: nothing.
func RecordOf(lb *hcloud.LoadBalancer) *Record {
	r := &Record{Labels: map[string]string{}}
	if lb == nil {
		return r
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(lb.Labels)) {
		if strings.HasPrefix(key, labelRecord) {
			parts = append(parts, lb.Labels[key])
		} else {
			r.Labels[key] = lb.Labels[key]
		}
	}
	text := strings.Join(parts, "")
	if text == "" {
		r.Found = r.Labels[LabelServiceUID] != ""
		return r
	}
	body := text[strings.LastIndex(text, ".")+1:]
	raw, err := recordEncoding.DecodeString(body)
	if text != recordHead(body)+body || err != nil || json.Unmarshal(raw, r) != nil {
		return &Record{Labels: r.Labels, Found: true}
	}
	return r
}

// Encode returns all labels.
func (r *Record) Encode() map[string]string {
	labels := maps.Clone(r.Labels)
	raw, err := json.Marshal(r)
	if err != nil || string(raw) == "{}" && r.Labels[LabelServiceUID] == "" { // it has no type that could fail
		return labels
	}
	body := recordEncoding.EncodeToString(raw)
	n := 0
	for part := range slices.Chunk([]byte(recordHead(body)+body), maxLabelValue) {
		n++
		labels[fmt.Sprintf("%s%03d", labelRecord, n)] = string(part)
	}
	return labels
}

// recordHead returns what comes before the body: the version of the form, and the check.
func recordHead(body string) string { return "1." + hashOf(body) + "." }

// hashOf returns a hash that no two texts share by accident.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// PortsOf returns the ports that the Service, the owner or a guest, has recorded on the load balancer.
func PortsOf(lb *hcloud.LoadBalancer, uid string) map[int]bool {
	r, ports := RecordOf(lb), map[int]bool{}
	all := r.Guests[uid]
	if r.Labels[LabelServiceUID] == uid {
		all = r.Ports
	}
	for _, port := range all {
		ports[port] = true
	}
	return ports
}

// Own makes the Service the owner, with these ports and marks.
func (r *Record) Own(uid string, ports []int, marks map[string]string) {
	r.Labels[LabelServiceUID], r.Ports = uid, ports
	maps.Copy(r.Labels, marks)
}

// Adopt makes the planned Service the owner of a person's load balancer. The existing ports are foreign, and so are targets other than
// ours if the load balancer is lent.
func (r *Record) Adopt(planned *LoadBalancer, targets []Target, ours map[int64]bool) {
	r.Own(planned.UID, nil, planned.Marks)
	r.Common = commonSettings{}
	if r.Found = planned.Adopt == ""; r.Found {
		return
	}
	r.Lent, r.ForeignServers = true, nil
	for _, t := range targets {
		if !ours[t.ServerID] {
			r.ForeignServers = append(r.ForeignServers, t.ServerID)
		}
	}
}

// Join makes the Service a guest with these ports.
func (r *Record) Join(uid string, ports []int) {
	if r.Guests == nil {
		r.Guests = map[string][]int{}
	}
	r.Labels[LabelGuest+uid], r.Guests[uid] = "", append([]int{}, ports...)
}

// Leave makes the Service no guest.
func (r *Record) Leave(uid string) {
	delete(r.Labels, LabelGuest+uid)
	delete(r.Guests, uid)
}

// Inherit makes a guest the owner.
func (r *Record) Inherit(heir string, marks map[string]string) {
	ports := r.Guests[heir]
	r.Leave(r.Labels[LabelServiceUID])
	r.Leave(heir)
	r.Own(heir, ports, marks)
	r.Labels[LabelGuest+heir] = "" // LoadBalancers.LookUp may ask for the owner before this write, and for the guest after it
	r.Labels[LabelLastOwner] = heir
}

// note applies an OpRecord or OpLabel. A recorded port of the Service stays recorded as long as the load balancer has it: the
// operation may come from an older state.
func (r *Record) note(op Op, lb *hcloud.LoadBalancer) {
	if op.Kind == OpLabel {
		r.setUserLabels(op.Labels)
		return
	}
	ports, own := slices.Clone(op.Ports), PortsOf(lb, op.UID)
	for _, s := range lb.Services {
		if own[s.ListenPort] {
			ports = append(ports, s.ListenPort)
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if op.Guest {
		r.Join(op.UID, ports)
		return
	}
	r.Leave(op.UID)
	r.Own(op.UID, ports, op.Marks)
	r.Shared, r.Common = op.Shared, op.Common
}

// setUserLabels sets the wanted labels, and removes earlier ones of the annotation. Labels from before the annotation are someone
// else's, and stay.
func (r *Record) setUserLabels(want map[string]string) {
	for _, key := range r.UserLabels {
		delete(r.Labels, key)
	}
	r.UserLabels = nil
	for key, value := range want {
		if _, others := r.Labels[key]; !others {
			r.UserLabels = append(r.UserLabels, key)
		}
		r.Labels[key] = value
	}
	slices.Sort(r.UserLabels)
}
