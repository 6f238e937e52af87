r"""Sparse adjacency matrices as :class:`torch_geometric.nn.GATConv` takes them: values are edge features, weights come back in
them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index
from torch_geometric.utils.sparse import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

MAKERS = {
    torch.sparse_coo: to_torch_coo_tensor,
    torch.sparse_csr: to_torch_csr_tensor,
    torch.sparse_csc: to_torch_csc_tensor,
}


def is_adjacency(edge_index: Any) -> bool:
    """Tells whether edges are a sparse matrix."""
    return isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index)


def adjacency_values(adjacency: Tensor) -> Tensor:
    """Returns the values of a sparse matrix, (E,) or (E, D), in the order of its edges."""
    values: Tensor = to_edge_index(adjacency)[1]
    return values


def warn_of_values(adjacency: Tensor) -> None:
    """Warns where a sparse matrix has values other than 1 and the layer does not read them."""
    if torch.compiler.is_compiling() or adjacency.is_cuda:  # nobody waits for a GPU to be told
        return
    if bool((adjacency_values(adjacency) != 1).any()):
        text = (
            "the values of the sparse edge_index are not used: set edge_dim, or pass them as edge_weight beside a (2, E) tensor"
        )
        warnings.warn(text, UserWarning, stacklevel=4)


def with_weights(adjacency: Tensor, edges: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns attention weights as a sparse matrix in the layout of an adjacency matrix, and its values.

    Shapes:
        - **edges:** :math:`(2, E)`, sources and targets; **weights:** :math:`(E, H)`
    """
    matrix = MAKERS[adjacency.layout](edges.flip(0), weights, size=tuple(adjacency.shape))
    return matrix, adjacency_values(matrix)
