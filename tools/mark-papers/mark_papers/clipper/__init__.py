"""Clipper's model selection (Crankshaw's thesis, section 3.5; NSDI '17): Figs. 3.7 to 3.10 with mark's own policies."""
