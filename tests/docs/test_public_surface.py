"""Public names and signatures change only together with the list of them."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def surface():
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("public_surface")
    sys.path.remove(str(DOCS))


def test_public_names_and_signatures_are_those_of_the_list(surface):
    kept, now = (
        set(text.splitlines())
        for text in (surface.LIST.read_text(encoding="utf-8"), surface.text())
    )
    assert now == kept, (
        f"gone: {sorted(kept - now)}; new: {sorted(now - kept)}; if this is meant, run make surface"
    )


def test_every_public_name_has_a_docstring(surface):
    for module in surface.public_modules():
        for name, meaning in surface.public_names(module):
            # those of constants the site asks for
            if inspect.isclass(meaning) or inspect.isfunction(meaning):
                assert (meaning.__doc__ or "").strip(), f"{module}.{name}"


def test_a_changed_signature_is_seen(surface):
    def before(x, *, scale=1.0): ...

    def after(x, *, scale=2.0): ...

    assert surface.signature(before) == "(x, *, scale=1.0)" != surface.signature(after)
