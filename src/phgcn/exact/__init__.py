"""The exact sum over all pairs of points, in time :math:`O(N^2)` and memory :math:`O(N)`."""
