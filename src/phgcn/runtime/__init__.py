"""How all kernels are compiled and run on a CPU and on a GPU, and how points are grouped by
graph."""
