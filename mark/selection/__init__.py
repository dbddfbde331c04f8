"""Choose among models that can answer the same query, learn from feedback, and weigh an answer against its price.

Everything here is pure: state and a time go in, decisions and new state come out. `mark.serving` asks the models, and
`mark.simulation` and `mark selection replay` call the same functions.
"""
