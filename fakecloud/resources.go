package fakecloud

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// What an Event's Old and New are pointers to, by its Kind. They show what the cloud holds; nothing
// may be changed in them.
type (
	// Server is behind events of KindServer.
	Server = cloud.Server
	// Network is behind events of KindNetwork.
	Network = cloud.Network
	// LoadBalancer is behind events of KindLoadBalancer.
	LoadBalancer = cloud.LoadBalancer
	// Certificate is behind events of KindCertificate.
	Certificate = cloud.Certificate
	// PrimaryIP is behind events of KindPrimaryIP.
	PrimaryIP = cloud.PrimaryIP
	// PlacementGroup is behind events of KindPlacementGroup.
	PlacementGroup = cloud.PlacementGroup
	// SSHKey is behind events of KindSSHKey.
	SSHKey = cloud.SSHKey
	// Image is behind events of KindImage.
	Image = cloud.Image
	// Action is behind events of KindAction.
	Action = cloud.Action
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
