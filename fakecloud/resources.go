package fakecloud

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// What an Event's Old and New are pointers to, by its Kind. They show what the cloud holds; nothing
// may be changed in them.
type (
	Server         = cloud.Server
	Network        = cloud.Network
	LoadBalancer   = cloud.LoadBalancer
	Certificate    = cloud.Certificate
	PrimaryIP      = cloud.PrimaryIP
	PlacementGroup = cloud.PlacementGroup
	SSHKey         = cloud.SSHKey
	Image          = cloud.Image
	Action         = cloud.Action
)

// The kinds of resources that events are about.
const (
	KindServer         = cloud.KindServer
	KindNetwork        = cloud.KindNetwork
	KindLoadBalancer   = cloud.KindLoadBalancer
	KindCertificate    = cloud.KindCertificate
	KindPrimaryIP      = cloud.KindPrimaryIP
	KindPlacementGroup = cloud.KindPlacementGroup
	KindSSHKey         = cloud.KindSSHKey
	KindImage          = cloud.KindImage
	KindAction         = cloud.KindAction
)
