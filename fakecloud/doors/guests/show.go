package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Guest shows a server's guest.
type Guest struct {
	Server  int64  `json:"server"`
	Name    string `json:"name"`
	Project int64  `json:"project"`
	// Address is where it answers SSH, such as 127.0.0.1:40123: "" while the server does not run, or boots.
	Address string `json:"address"`
	HostKey string `json:"host_key"` // in the format of authorized_keys
	Rescue  bool   `json:"rescue"`   // it runs the rescue system
	// Log is what it was told, if one guest was asked for.
	Log []Entry `json:"log,omitempty"`
}

// Guests returns all guests, by the ids of their servers.
func (d *Door) Guests() []Guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []Guest{}
	for _, id := range slices.Sorted(maps.Keys(d.guests)) {
		out = append(out, d.show(d.guests[id]))
	}
	return out
}

// show describes a guest. The caller holds mu.
func (d *Door) show(g *guest) Guest {
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(d.hostKey(g.id).PublicKey())))
	out := Guest{Server: g.id, Name: g.about.Name, Project: g.about.Project, HostKey: key, Rescue: g.run != nil && g.run.rescue}
	if g.run != nil && g.run.listener != nil {
		out.Address = g.run.listener.Addr().String()
	}
	return out
}

// Guest waits until a server exists, runs and has booted, and returns its guest.
func (d *Door) Guest(ctx context.Context, server int64) (out Guest, err error) {
	err = d.wait(ctx, func() bool {
		if g := d.guests[server]; g != nil {
			out = d.show(g)
		}
		return out.Address != ""
	})
	if err != nil {
		err = fmt.Errorf("guest of server %d: %w; start the server, and step the clock by the boot time", server, err)
	}
	return out, err
}

// ServeHTTP shows all guests, or those of a server with their logs: ?server= is its id or name.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := d.Guests()
	for i, g := range all { // the door learns another name with the next task
		if p, ok := d.core.Project(g.Project); ok {
			if s, ok := p.View().Servers.Get(g.Server); ok {
				all[i].Name = s.Name
			}
		}
	}
	if wanted := r.URL.Query().Get("server"); wanted != "" {
		all = slices.DeleteFunc(all, func(g Guest) bool { return g.Name != wanted && strconv.FormatInt(g.Server, 10) != wanted })
		for i := range all {
			all[i].Log = d.Log(all[i].Server)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"guests": all}) // the client may be gone
}
