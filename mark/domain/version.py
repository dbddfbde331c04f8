"""The version alone, so that naming it imports nothing."""

VERSION = "0.1.0"
