r"""Lists every public name with its signature; the list is kept, so that a change of it is seen.

    python docs/public_surface.py        # writes docs/public_surface.txt; or: make surface

Public is what a package of the library names in ``__all__``.  ``tests/docs/test_public_surface.py``
compares the list with the code, and the site's API reference (``conf.py``) is made of the same
names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import phgcn
import phgcn_lab

PACKAGES = tuple(Path(package.__file__).parent for package in (phgcn, phgcn_lab))
LIST = Path(__file__).resolve().with_suffix(".txt")
LAB = ("phgcn_lab.geom_gcn",)
"""The public parts of the lab, which is a set of experiments otherwise."""


def public_modules() -> list[str]:
    """The modules that promise names: the package, its rooms with ``__all__``, and the public parts
    of the lab.
    """
    rooms = (
        f"phgcn.{room.name}"
        for room in pkgutil.iter_modules(phgcn.__path__)
        if not room.name.startswith("_")
    )
    return [
        "phgcn",
        *sorted(name for name in rooms if hasattr(importlib.import_module(name), "__all__")),
        *LAB,
    ]


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """The names of a module in ``__all__`` with what they stand for; modules, which are listed on
    their own, left out.
    """
    home = importlib.import_module(module)
    for name in sorted(home.__all__):
        meaning = getattr(home, name)
        if not isinstance(meaning, ModuleType):
            yield name, meaning


def signature(function: Any) -> str:
    """The parameters with their kinds and defaults; types, which may become more precise, are left
    out.
    """
    try:
        found = inspect.signature(function)
    except ValueError:  # some classes of C have none
        return "(...)"
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name != "self"]
    shown = str(found.replace(parameters=plain, return_annotation=found.empty))
    # addresses differ from run to run
    return re.sub(r"<function .*? at 0x\w+>", "<function>", shown)


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has from this library, inherited ones too."""
    for name, member in inspect.getmembers(owner):
        function = (
            member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        )
        # PyG makes methods at run time, which are in no file of ours
        code = getattr(function, "__code__", None)
        if (
            code
            and any(map(Path(code.co_filename).is_relative_to, PACKAGES))
            and not name.startswith("_")
        ):
            yield name, member


def lines() -> Iterator[str]:
    for module in public_modules():
        for name, meaning in public_names(module):
            full = f"{module}.{name}"
            if not inspect.isclass(meaning) and not inspect.isfunction(meaning):
                yield full  # a constant
                continue
            yield full + signature(meaning)
            for member, what in members(meaning) if inspect.isclass(meaning) else ():
                yield f"{full}.{member}" + ("" if isinstance(what, property) else signature(what))


def text() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    LIST.write_text(text(), encoding="utf-8")
    print(LIST)
