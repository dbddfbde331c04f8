"""The experiments of ParM (Kosaian, Rashmi and Venkataraman, SOSP 2019)."""
