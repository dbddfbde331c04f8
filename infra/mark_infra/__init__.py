"""Adapters of the ports: AWS, and a world on this machine."""
