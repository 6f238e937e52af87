r"""The registry of measurements, and how one is run: ``python lab/bench NAME``.

A measurement is a function that takes the options of the command line and returns the content of
its JSON, or yields it again and again as it grows.  The runner adds where the numbers come from,
writes the file after every step and prints the tables that the documents show.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch

from phgcn.files import write_json

FOLDER = Path(__file__).resolve().parent
Content = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    # Takes the options; returns or yields the content of the JSON.
    run: Callable[[argparse.Namespace], Content | Iterator[Content]]
    about: str  # the first paragraph of the docstring of `run`
    tables: Callable[[Content], Iterable[str]] | None  # makes lines of Markdown of the content
    quick: str | None  # what `--quick` leaves out; None if there is no such option
    needs_gpu: bool
    out: Path  # where the JSON goes by default
    options: dict[str, dict[str, Any]]  # further ones, with what `add_argument` takes


REGISTRY: dict[str, Measurement] = {}


def measurement(
    *,
    tables: Callable[[Content], Iterable[str]] | None = None,
    quick: str | None = None,
    needs_gpu: bool = False,
    folder: Path = common.RESULTS,
    **options: dict[str, Any],
) -> Callable[[Callable], Callable]:
    """Registers the decorated function under its name. Further options are ``name=settings``."""

    def register(run: Callable) -> Callable:
        name = run.__name__
        about = " ".join((inspect.getdoc(run) or "").split("\n\n")[0].split())
        out = folder / f"{name}.json"
        REGISTRY[name] = Measurement(run, about, tables, quick, needs_gpu, out, options)
        return run

    return register


def load_all() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        if "\n@measurement(" in path.read_text(encoding="utf-8"):
            importlib.import_module(path.stem)


def parser(name: str) -> argparse.ArgumentParser:
    about = REGISTRY[name]
    made = argparse.ArgumentParser(f"python lab/bench {name}", description=about.about)
    made.add_argument("--out", type=Path, help=f"where the JSON goes (default: {about.out})")
    if about.quick is not None:
        text = f"{about.quick}; no JSON without --out"
        made.add_argument("--quick", action="store_true", help=text)
    for option, settings in about.options.items():
        made.add_argument(f"--{option.replace('_', '-')}", **settings)
    return made


def run(name: str, arguments: list[str]) -> Content:
    """Writes the JSON; of quick versions only if ``--out`` is given."""
    about, options = REGISTRY[name], parser(name).parse_args(arguments)
    if about.needs_gpu and not options.quick and not torch.cuda.is_available():
        sys.exit(f"no CUDA device: {name} measures one")
    quick, begin = getattr(options, "quick", False), time.perf_counter()
    out = options.out or (None if quick else about.out)
    options.kept = out  # measurements that keep the rows of earlier calls read this file
    origin = {"provenance": common.provenance(), "quick": quick}
    made = about.run(options)
    content: Content = {}
    for step in [made] if isinstance(made, dict) else made:
        content = {**origin, **step}
        if out is not None:
            write_json(out, content)
    for line in about.tables(content) if about.tables and content else ():
        print(line)
    where = f", written to {out}" if out is not None else ""
    print(f"{name}: {time.perf_counter() - begin:.0f} s{where}", flush=True)
    return content
