"""The ladder and the paper's filter for all clouds of a call together, in plain torch but for a few
kernels of the backend.

GPUs and several processes (:mod:`phgcn.distributed`) run this code.  The points and vertices of all
graphs and heads are in one list, sorted by cloud.  A backend gives four kernels
(:class:`phgcn.lattice.joint.kernels.Kernels`), the processes five ways to share
(:class:`phgcn.lattice.joint.kernels.Peers`)."""
