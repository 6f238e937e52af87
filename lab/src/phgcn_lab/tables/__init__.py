r"""Tables without edges: attention to the labels of all rows beside boosted trees, an MLP and k
nearest rows."""
