// Package dns has the rules of names, zone files and records. It knows nothing of a cloud. What is wrong with a value is a text that
// ends the sentence "the field …"; the cloud makes the API's errors of such texts.
package dns
