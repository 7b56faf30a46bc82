package framework

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// shop is a shared cloud. In it, the CCM changed a certificate of the spec's, and one of another spec's.
type shop struct{ cloud.Cloud }

func (shop) LoadBalancers(context.Context) ([]cloud.LoadBalancer, error) { return nil, nil }

func (shop) Requests(context.Context, uint64) ([]cloud.Request, error) {
	return []cloud.Request{
		{Seq: 1, Write: true, About: cloud.AboutLoadBalancers, ID: "own"},
		{Seq: 2, Write: true, About: cloud.AboutLoadBalancers, ID: "of another spec"},
	}, nil
}

func TestWritesToWhatElseBelongsToServicesCount(t *testing.T) {
	RegisterTestingT(t)
	env := &Env{suite: &Suite{shared: &Shared{}}, Cloud: shop{}}
	env.CCM.env, env.LoadBalancers.env = env, env
	env.created.addService("uid")
	Expect(env.CCM.ServiceWrites()).To(Equal(0))
	env.AlsoOwns(func(context.Context) (ids []string) {
		for id, service := range map[string]types.UID{"own": "uid", "of another spec": "another"} {
			if env.Owns(id, service) {
				ids = append(ids, id)
			}
		}
		return ids
	})
	Expect(env.CCM.ServiceWrites()).To(Equal(1))
}
