"""The nouns: frozen, self-checking, with units in names. Imports no other package of mark."""
