package fakecloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/seed"
)

// SeedFile is Seed with the content of a file.
func (c *Cloud) SeedFile(ctx context.Context, path string) (created int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("seed: %w", err)
	}
	return c.Seed(ctx, path, data)
}

// Seed creates the resources of a YAML document and returns how many it created. It sends the requests of a client: the
// API validates them, the journal shows them, and they count against the rate limit. For an id, the document may have
// a name:
//
//	networks:
//	  - {name: cluster, ip_range: 10.0.0.0/16, subnets: [{type: cloud, network_zone: eu-central, ip_range: 10.0.1.0/24}]}
//	servers:
//	  - {name: web-1, server_type: cx23, image: ubuntu-24.04, networks: [cluster]}
//
// It waits for each action. If the clock stands still, step it meanwhile. Its errors begin with name and a line. It
// creates nothing if the YAML is malformed or has a field that the API does not know. After an error of the API, the
// resources that it created before stay.
func (c *Cloud) Seed(ctx context.Context, name string, data []byte) (created int, err error) {
	docs, err := seed.Parse(name, data)
	if err != nil {
		return 0, err
	}
	if err := c.checkFields(ctx, docs); err != nil {
		return 0, err
	}
	for _, doc := range docs {
		n, err := c.seedProject(ctx, doc)
		created += n
		if err != nil {
			return created, err
		}
	}
	return created, nil
}

// checkFields returns an error for each field of the documents that the API does not know. The API itself ignores such
// fields. It asks a second cloud of the same API date, so that c does not change.
func (c *Cloud) checkFields(ctx context.Context, docs []seed.Document) error {
	scratch := New(Options{APIDate: c.options.APIDate})
	defer scratch.Close()
	ctx = api.OnlyUnknownFields(ctx)
	var errs []error
	for _, doc := range docs {
		errs = append(errs, doc.Check(ctx, func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
			return scratch.seedRequest(ctx, DefaultToken, method, path, body)
		}))
	}
	return errors.Join(errs...)
}

func (c *Cloud) seedProject(ctx context.Context, doc seed.Document) (_ int, err error) {
	var token string
	project, ok := c.controller.Project(doc.Project)
	if ok {
		token, err = c.controller.AddToken(project.ID(), "", false)
	} else if _, token, err = c.controller.AddProject(doc.Project, ""); err == nil {
		project, err = c.controller.TokenProject(token)
	}
	if err != nil {
		return 0, err
	}
	defer c.cloud.RevokeToken(token)
	return doc.Apply(ctx, seed.Target{
		Do: func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
			return c.seedRequest(ctx, token, method, path, body)
		},
		Await: func(ctx context.Context, actions []int64) error { return awaitActions(ctx, project, actions) },
	})
}

func (c *Cloud) seedRequest(ctx context.Context, token, method, path string, body []byte) (int, []byte, error) {
	header := http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "User-Agent": {"fakecloud-seed"},
	}
	return send(ctx, c.api, method, api.Prefix+path, header, body)
}

// awaitActions returns when none of the actions is running. It returns an error if one failed.
func awaitActions(ctx context.Context, p cloud.Project, ids []int64) error {
	var failed error
	err := p.Await(ctx, func(st *cloud.State) bool {
		failed = nil
		for _, id := range ids {
			a, ok := st.Actions.Get(id)
			if !ok {
				continue
			}
			switch {
			case a.Status == cloud.ActionRunning:
				return false
			case a.Status == cloud.ActionFailed && failed == nil: // those after it fail because of it
				failed = fmt.Errorf("action %s failed: %s (%s)", a.Command, a.ErrorMessage, a.ErrorCode)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}
