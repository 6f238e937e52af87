r"""When global attention helps: GlobalGNN with its global path against itself without, behind
``phgcn reproduce when``.
"""
