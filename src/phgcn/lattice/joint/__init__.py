"""The ladder and the paper's filter for all clouds of a call together, in plain torch and few
kernels.

GPUs and several processes (:mod:`phgcn.distributed`) run this code. Points and vertices of all
graphs and heads are one list, sorted by cloud. A backend has the methods of
:class:`.kernels.Kernels`, the processes have :class:`.kernels.Peers`."""
