package cloud

// DefaultCatalogue returns the catalogue that is embedded in the program.
func DefaultCatalogue() *Catalogue { return &Catalogue{} }
