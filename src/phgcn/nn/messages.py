r"""Whether a layer must compute messages one by one, as explainers and hooks of PyG expect, instead of summing them at once."""

from __future__ import annotations

from typing import Any

HOOKS = tuple(f"_{stage}_forward{kind}" for stage in ("propagate", "message", "aggregate") for kind in ("_pre_hooks", "_hooks"))


def shows_messages(conv: Any) -> bool:
    """Tells whether an explainer masks the messages of a layer of PyG, or a hook looks at them."""
    return bool(conv.explain) or any(getattr(conv, hooks) for hooks in HOOKS)
