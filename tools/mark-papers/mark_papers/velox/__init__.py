"""The experiments of Velox (Crankshaw's thesis, chapter 2; CIDR 2015)."""
