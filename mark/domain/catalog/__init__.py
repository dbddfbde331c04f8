"""Price catalogues: dated tables of offers, which ship by name."""
