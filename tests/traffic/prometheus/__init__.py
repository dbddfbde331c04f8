"""Tests of `mark.traffic.prometheus`."""
