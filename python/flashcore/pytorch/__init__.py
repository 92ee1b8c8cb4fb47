"""Integration with PyTorch: an operator for its compiler, nested tensors and fake tensors.

The rest of the package imports seam.py and tensors.py alone, which need no torch to be imported.
"""
