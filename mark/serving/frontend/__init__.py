"""Protocols: HTTP, gRPC, authentication, documents."""
