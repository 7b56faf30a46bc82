package cloud

import (
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
	shutdown := did(p.ShutdownServer(id))(t)
	complete(t, h, "shutdown_server", nil)
	wantAction(t, p, shutdown, "shutdown_server", ActionSuccess)
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerStopping, false)
	did(p.PowerOffServer(id))(t)
	complete(t, h, "stop_server", nil)
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
