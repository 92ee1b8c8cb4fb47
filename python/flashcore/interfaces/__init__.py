"""Attention in one call, by the names and arguments of other libraries.

flashcore.flash_attn, which users import by its name, is one more.
"""
