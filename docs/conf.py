r"""How Sphinx makes the site of the documents and the docstrings: ``make docs``, warnings are
errors.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import phgcn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from public_surface import public_modules, public_names

PUBLIC_NAMES = "<!-- public names -->"
"""The line of api.md that stands for all public names."""
OTHER_PAGES = "<!-- other pages -->"
"""The line of index.md that stands for all pages that no other part of it names."""

project = "phgcn"
author = "the phgcn authors"
version = release = phgcn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "public_surface.txt", "engineering"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # as GitHub: links to headings work in both
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types, as PyG's do
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    # Methods from a base class of ours are shown, those of torch, PyG, scikit-learn and Python are
    # not.
    "inherited-members": "MessagePassing, Module, BaseEstimator, ClassifierMixin, RegressorMixin, _MetadataRequester, "  # noqa: E501
    "tuple, dict, BaseException, ValueError, RuntimeError, ABC, object",
    "exclude-members": "set_score_request",  # scikit-learn's
}
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_custom_sections = ["Shapes"]

html_theme = "furo"
html_title = f"phgcn {release}"
html_show_copyright = False


def other_pages(app: Sphinx, index: str) -> list[str]:
    """The pages that the index does not name."""
    named = set(re.findall(r"^(?:.*<)?([\w/-]+)>?$", index, flags=re.MULTILINE))
    return sorted(
        name for name in app.env.found_docs if "/" not in name and name not in {"index", *named}
    )


def constant_docstring(name: str, meaning: object) -> list[str]:
    """The lines under a constant's assignment, in whichever module of the library that is."""
    for module in sorted(
        module for module in sys.modules if module.startswith(("phgcn.", "phgcn_lab."))
    ):
        lines = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
        if lines and getattr(sys.modules[module], name, None) is meaning:
            return lines
    raise ValueError(f"{name} has no docstring under its assignment; every public name has one")


def api_lines() -> Iterator[str]:
    """A heading for every public module and a directive for every public name; each object once,
    where it is first named.
    """
    shown: set[int] = set()
    for module in public_modules():
        yield from (f"## {module}", "", "```{eval-rst}", f".. automodule:: {module}")
        yield from ("   :no-members:", "   :no-inherited-members:", "")
        for name, meaning in public_names(module):
            if id(meaning) in shown:
                continue
            shown.add(id(meaning))
            if inspect.isclass(meaning) or inspect.isfunction(meaning):
                yield f".. auto{'class' if inspect.isclass(meaning) else 'function'}:: {module}.{name}"  # noqa: E501
            else:  # autodata would show the docstring of its type
                yield from (f".. py:data:: {name}", f"   :module: {module}", "")
                yield from (f"   {line}" for line in constant_docstring(name, meaning))
            yield ""
        yield from ("```", "")


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Replaces the lines that stand for what is listed by a program, and links to the engineering
    notes, which are no part of the site, by the names of their files.
    """
    source[0] = re.sub(r"\[[^\]]+\]\((engineering/[\w.]+)(?:#[\w-]+)?\)", r"`docs/\1`", source[0])
    source[0] = re.sub(r"\[[^\]]+\]\(\.\./(lab/README\.md)(?:#[\w-]+)?\)", r"`\1`", source[0])
    if page == "index":
        source[0] = source[0].replace(OTHER_PAGES, "\n".join(other_pages(app, source[0])))
    elif page == "api":
        source[0] = source[0].replace(PUBLIC_NAMES, "\n".join(api_lines()))


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill_in)
