package hetzner_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// A server whose label was removed is found by its ID, whichever prefix the provider IDs have today.
func TestAServerIsFoundByAProviderIDWithAnEarlierPrefix(t *testing.T) {
	for prefix, want := range map[string]error{"hcloud://": machine.ErrInstanceNotOwned, "ccm-from-scratch://": machine.ErrInstanceNotOwned,
		"other://": machine.ErrInstanceNotFound} {
		w := newWorld(t)
		m := w.machineWith(`{"serverType": "cx23"}`)
		m.Spec.ProviderID = prefix + w.create(m).ID()
		if i, err := w.p.Get(w.ctx, m); err != nil || i.ProviderID() != m.Spec.ProviderID {
			t.Errorf("%s: %v, %v", prefix, i, err)
		}
		_, _, err := w.api.Server.Update(w.ctx, w.servers()[0], hcloud.ServerUpdateOpts{Labels: map[string]string{}})
		w.must(err)
		if i, err := w.p.Get(w.ctx, m); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", prefix, i, err, want)
		}
	}
}

func TestTheAccountStandsForTheToken(t *testing.T) {
	w := newWorld(t)
	account := func(token string) string {
		a, err := w.p.Account(w.ctx, w.machineWith(`{"serverType": "cx23", "token": "`+token+`"}`).Spec)
		w.must(err)
		return a
	}
	before := w.requests()
	if a := account("secret"); a != account("secret") || a == account("other") || strings.Contains(a, "secret") || w.requests() != before {
		t.Errorf("account %q", a)
	}
}

func TestShowsReadsAllPages(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for i := range 51 {
		m := w.machineWith(`{"serverType": "cx23"}`)
		m.Name, m.UID = "worker-"+strconv.Itoa(i), types.UID("uid-"+strconv.Itoa(i))
		ids = append(ids, w.create(m).ProviderID())
	}
	shows, err := w.p.Shows(w.ctx, w.machineWith(`{"serverType": "cx23"}`).Spec, append(ids, "ccm-from-scratch://1", "aws:///zone/i-1"))
	w.must(err)
	for _, id := range ids {
		if !shows[id] {
			t.Errorf("%s is not there", id)
		}
	}
	if len(shows) != 52 || shows["ccm-from-scratch://1"] {
		t.Errorf("shows %v", shows)
	}
	w.fault(fault.Rule{Operation: "list_servers", Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: "{}"}})
	if shows, err := w.p.Shows(w.ctx, w.machineWith(`{"serverType": "cx23"}`).Spec, ids); err == nil {
		t.Errorf("an answer without a list: %v", shows)
	}
}
