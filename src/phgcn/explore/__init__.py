"""The explorer: one page, without a server, that shows what a network attends to."""

from .content import Column, Content, EdgeAttention, Side, View
from .gather import gather_graph, gather_views
from .page import page_bytes, write_page
from .runs import explore_runs

__all__ = [
    "Column",
    "Content",
    "EdgeAttention",
    "Side",
    "View",
    "explore_runs",
    "gather_graph",
    "gather_views",
    "page_bytes",
    "write_page",
]
