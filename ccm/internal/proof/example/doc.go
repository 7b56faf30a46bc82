// Package example tests the example CCM (ccm/example) with the example cloud (e2e/cloud/example). It has no code but its tests: the CCM
// must not know who answers it.
package example
