r"""Other ways to sum :math:`e^{-\lVert p_i - p_j \rVert}`, beside this library's: error, time and
memory of each.

``clouds`` has the points, ``adapters`` all rivals with the settings they are swept over (their
methods in ``sliced``, ``hashed``, ``low_rank`` and ``packages``), ``measure`` one call, ``worker``
a process with a time limit, ``run`` the whole, ``report`` tables and figures.  Lengths are in units
of 1/decay."""
