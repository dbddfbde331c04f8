"""Learn a small model of each user ("head") behind a shared model: prediction = w_u . f(x), corrected by each reward.

Everything here is pure: state, observations and a seeded generator go in, scores and new state come out. No module
reads a clock, a file or the network. `mark.serving` and `mark personal replay` call the same functions.
"""
