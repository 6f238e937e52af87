"""Which part of the package may import which: one direction, no cycle, and nothing knows the
lab."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import phgcn

ROOT = Path(phgcn.__file__).resolve().parent
COMPOSITION_ROOT = "phgcn.cli.app"  # mounts all commands
LAB = "phgcn_lab"
CORE = ("checks", "exact", "runtime", "lattice", "structural")  # the operations and what they share
FORBIDDEN = {
    "lattice": {"nn", "functional", "data", "train", "report", "cli"},
    "exact": {"nn", "functional", "data", "train", "report", "cli"},
    "structural": {"nn", "functional", "data", "train", "report", "cli"},
    "runtime": {"nn", "functional", "data", "train", "report", "cli"},
    "checks": {"nn", "functional", "data", "train", "report", "cli"},
    "calls": {"nn", "functional", "accuracy", "tolerance", "data", "train", "report", "cli"},
    "accuracy": {"nn", "functional", "tolerance", "data", "train", "report", "cli"},
    "tolerance": {"nn", "functional", "data", "train", "report", "cli"},
    "functional": {"nn", "data", "train", "report", "cli"},
    "registry": {"nn", "functional", "lattice", "data", "train", "report", "cli"},
    "files": {"nn", "functional", "lattice", "data", "train", "report", "cli"},
    "nn": {"data", "train", "report", "cli"},
    "data": {"nn", "functional", "lattice", "train", "report", "cli"},
    "train": {"report", "estimators", "cli"},
    "report": {"cli", "estimators"},
    "estimators": {"cli"},
    "explore": {"cli"},
    "cli": set(),
}
for rooms in (rooms for name, rooms in FORBIDDEN.items() if name not in ("explore", "cli")):
    rooms.add("explore")


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[str]:
    """The modules of the package and of the lab that a file imports, anywhere in it; those for type
    checkers left out.
    """
    name = module_name(path, root)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if alias.name.split(".")[0] in (root.name, LAB)
            )
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            if module.split(".")[0] in (root.name, LAB):
                # `from . import x` may import the module x, `from .x import name` a name of it
                yield from (
                    f"{module}.{alias.name}"
                    if is_module(root, f"{module}.{alias.name}")
                    else module
                    for alias in node.names
                )


def is_module(root: Path, name: str) -> bool:
    path = root.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def room(module: str) -> str:
    """The part of the package that a module belongs to; the package itself is ""."""
    return module.split(".")[1] if "." in module else ""


def layer(module: str) -> str:
    """The room, or "core" for the rooms below ``functional``, which share helpers."""
    return "core" if room(module) in CORE else room(module)


def graph_of_imports(root: Path) -> dict[str, set[str]]:
    return {
        module_name(path, root): set(imports(path, root)) for path in sorted(root.rglob("*.py"))
    }


def knows_lab(graph: dict[str, set[str]]) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in graph.items()
        for target in targets
        if target.split(".")[0] == LAB
    ]


def wrong_directions(graph: dict[str, set[str]]) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in graph.items()
        for target in targets
        if room(target) in FORBIDDEN.get(room(module), ())
    ]


def cycle_of_rooms(graph: dict[str, set[str]]) -> list[str]:
    """A cycle between parts of the package, or nothing."""
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if module not in (COMPOSITION_ROOT, "phgcn.cli") and room(module):
            rooms.setdefault(layer(module), set()).update(
                {layer(target) for target in targets} - {"", layer(module)}
            )
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name not in done:
            for target in sorted(rooms.get(name, ())):
                if found := walk(target, [*way, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in rooms if (found := walk(name, []))), [])


GRAPH = graph_of_imports(ROOT)


def test_the_imports_are_seen():
    assert (
        "phgcn.nn.models" in GRAPH["phgcn.train.loop"]
        and "phgcn.cli.training" in GRAPH[COMPOSITION_ROOT]
    )
    assert set(FORBIDDEN) <= {room(module) for module in GRAPH}


def test_nothing_knows_the_lab():
    assert knows_lab(GRAPH) == []


def test_imports_go_one_way():
    assert wrong_directions(GRAPH) == []


def test_no_part_imports_itself_through_others():
    assert cycle_of_rooms(GRAPH) == []


@pytest.mark.parametrize(
    ("path", "text", "check"),
    [
        ("train/run.py", "def f():\n    from phgcn_lab.geom_gcn import GeomGCN\n", knows_lab),
        ("nn/models.py", "import phgcn.train.loop\n", wrong_directions),
        ("lattice/ops.py", "from .. import nn\n", wrong_directions),
        ("data/load.py", "from ..report import plot\n", cycle_of_rooms),
    ],
)
def test_a_wrong_import_is_found(path, text, check, tmp_path):
    for name, content in (
        ("nn/__init__", ""),
        ("train/loop", ""),
        ("report/plot", "from ..data import load\n"),
    ):
        file = tmp_path / "phgcn" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    file = tmp_path / "phgcn" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    assert check(graph_of_imports(tmp_path / "phgcn"))
