// Package house tests which modules and which public names an importer of this module gets.
package house
