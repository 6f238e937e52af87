r"""The paper's experiments, one file each, behind ``phgcn reproduce``."""
