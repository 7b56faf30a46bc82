package remote_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

func TestScenariosAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, _ *fakecloud.Cloud, c controls) {
		ctx, s := t.Context(), c.Scenarios()
		path := filepath.Join(t.TempDir(), "mine.yaml")
		ok(t, os.WriteFile(path, []byte("name: mine\ndescription: A limit of $most.\nparameters: [{name: most, default: \"2\"}]\n"+
			"changes: [{limit: {project: 1, kind: server, most: $most}}]\n"), 0o600))
		must := must[scenario.Running](t)
		first := must(s.Start(ctx, "sold-out=cx33"))
		second := must(s.Start(ctx, path+"=3"))
		if first.Parameters["type"] != "cx33" || second.Description != "A limit of 3." || second.ID != first.ID+1 || second.InForce != 1 {
			t.Errorf("%+v, %+v", first, second)
		}
		if all, err := s.List(ctx); err != nil || len(all) != 2 || all[1].Name != "mine" {
			t.Errorf("%+v, %v", all, err)
		}
		if limits, err := c.Limits(ctx, 1); err != nil || limits["server"] != 3 {
			t.Errorf("%v, %v", limits, err)
		}
		if all, err := s.Available(ctx); err != nil || len(all) < 20 || all[0].Parameters[0].Description == "" {
			t.Errorf("%+v, %v", all, err)
		}
		ok(t, s.End(ctx, second.ID))
		if err := s.End(ctx, second.ID); !errors.Is(err, scenario.ErrNotFound) {
			t.Errorf("End: %v", err)
		}
		if _, err := s.Start(ctx, "sold-in"); !errors.Is(err, scenario.ErrNotFound) {
			t.Errorf("Start: %v", err)
		}
		ok(t, c.Reset(ctx))
		if all, err := s.List(ctx); err != nil || len(all) != 0 {
			t.Errorf("after a reset: %+v, %v", all, err)
		}
	})
}
