"""The experiments of the MArk paper."""
