"""The rules of the data plane, each written once: plain functions of scalars.

The kernel compiles them, and the live bouncer calls them, so they import nothing and use only arithmetic.
"""
