"""The nouns: frozen, self-checking, units in names. Imports nothing of mark's."""
