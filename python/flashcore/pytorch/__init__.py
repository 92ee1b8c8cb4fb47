"""What PyTorch asks for beside a launch: an operator for its compiler, nested and fake tensors.

The rest of the package imports seam.py and tensors.py alone, which need no torch to be imported.
"""
