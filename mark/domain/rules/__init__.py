"""The rules of the data plane, each written once: plain functions over scalars.

The kernel compiles them, the live bouncer calls them; so they import nothing and use nothing but arithmetic.
"""
