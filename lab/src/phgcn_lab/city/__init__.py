r"""A network of streets of which few labels are known: attention on the map beside local networks
and label propagation."""
