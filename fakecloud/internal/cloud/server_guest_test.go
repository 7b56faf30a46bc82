package cloud

import (
	"bytes"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// The action only says that the request was sent. The API document says that the system of the server may ignore it.
func TestAGuestThatIgnoresAShutdownIsNotOffUntilItsPowerIsCut(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	did(p.WithOutcome(&ActionOutcome{GuestIgnores: true}).ShutdownServer(id))(t)
	noTask(t, h) // it would do it
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerRunning, false)
	shutdown := did(p.ShutdownServer(id))(t)
	complete(t, h, "shutdown_server", nil)
	wantAction(t, p, shutdown, "shutdown_server", ActionSuccess)
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerStopping, false)
	did(p.PowerOffServer(id))(t)
	complete(t, h, "stop_server", nil)
	wantStatus(t, p, id, ServerOff, false)
	did(p.WithOutcome(&ActionOutcome{StaysOff: true}).PowerOnServer(id))(t)
	noTask(t, h)
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerOff, false)
}

func TestATypeWithASmallerDiskOrAnotherStorageDoesNotFit(t *testing.T) {
	t.Parallel()
	catalogue := serverCatalogue()
	network := *catalogue.ServerTypes[1] // big
	network.ID, network.Name, network.StorageType = 8, "network", "network"
	catalogue.ServerTypes = append(catalogue.ServerTypes, &network)
	p, clk := serverCloud(t, Options{Catalogue: catalogue})
	id := offServer(t, p, clk, smallServer("a")).ID
	for kind, want := range map[string]string{"network": "invalid_server_type", "tiny": "invalid_server_type", "big": ""} {
		for _, upgrade := range []bool{false, true} {
			if want == "" && !upgrade {
				continue // a change that succeeds would be the type of the next case
			}
			_, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).ChangeServerType(id, kind, upgrade)
			wantCode(t, kind, err, want)
			clk.Step(time.Second)
		}
	}
}

// TestCredentialsAreForHypervisorsThatWantThem has a hypervisor without credentials: it sees no hash, and gets no task.
func TestCredentialsAreForHypervisorsThatWantThem(t *testing.T) {
	t.Parallel()
	for _, wants := range []bool{true, false} {
		p, clk := serverCloud(t, Options{})
		id := runningServer(t, p, clk, smallServer("a")).ID
		h := attach(t, p, hypervisor.Options{Credentials: wants})
		if got := h.Guests()[0].PasswordHash; (got != nil) != wants {
			t.Errorf("credentials %v: the guest has the hash %x", wants, got)
		}
		for command, do := range map[string]func() (string, int64, *State, error){
			"reset_password": func() (string, int64, *State, error) { return p.ResetServerPassword(id) },
			"enable_rescue":  func() (string, int64, *State, error) { return p.EnableServerRescue(id, nil) },
		} {
			password, _, _, err := do()
			check(t, err)
			if !wants {
				noTask(t, h)
				clk.Step(time.Minute)
				continue
			}
			task := nextTask(t, h, command)
			hash := task.Guest.PasswordHash
			if command == "enable_rescue" {
				hash = task.Guest.Rescue.PasswordHash
			}
			if !bytes.Equal(hash, hashOf(password)) || !task.Runs {
				t.Errorf("%+v", task)
			}
			check(t, h.Complete(t.Context(), task.Action, nil))
		}
		did(p.RebootServer(id))(t)
		if task := nextTask(t, h, "reboot_server"); (task.Guest.Rescue != nil) != wants {
			t.Errorf("credentials %v: the boot has the rescue system %+v", wants, task.Guest.Rescue)
		}
	}
}

// TestATaskWithCredentialsWaitsForNoHypervisorWithout leaves a task to a hypervisor that is gone before it asks.
func TestATaskWithCredentialsWaitsForNoHypervisorWithout(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{Credentials: true, Grace: time.Second, TaskTimeout: time.Hour})
	_, action, _, err := p.ResetServerPassword(id)
	check(t, err)
	h.Suspend()
	clk.Step(2 * time.Second)
	p.cloud.Settle()
	noTask(t, attach(t, p, hypervisor.Options{Name: "other"}))
	if a, _ := p.View().Actions.Get(action); a.Status != ActionSuccess {
		t.Errorf("the action is %s, but no hypervisor is told of it", a.Status)
	}
}
