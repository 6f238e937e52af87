r"""Global attention and full-graph training over several processes of :mod:`torch.distributed`; see ``docs/distributed.md``."""
