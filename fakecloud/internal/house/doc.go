// Package house has the tests of what an importer of this module gets: its modules and its public names.
package house
