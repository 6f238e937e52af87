r"""Global attention and full-graph training over the processes of a :mod:`torch.distributed` group; see ``docs/distributed.md``."""
