"""Attention to the neighbours in a graph; :func:`phgcn.structural_attention` is the way in."""
