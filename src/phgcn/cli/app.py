"""The command ``phgcn``: its sub-commands, and errors as one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, NoReturn

import typer
from typer import Option

from ..text import printable
from . import about, partition, training, tuning, using

EXIT_FAILURE, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="phgcn",
    help="Global attention for graphs, at linear cost: train, evaluate, predict, tune and plot.",
    epilog="Exit codes: 0 done, 1 failed (disk full, loss no number), 2 wrong input, "
    "130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__
        from ..provenance import source_commit

        commit, dirty = source_commit()
        source = f" (commit {commit[:7]}{', with changes' if dirty else ''})" if commit else ""
        typer.echo(f"phgcn {__version__}{source}")
        raise typer.Exit


_print = "Print version and commit."
Version = Annotated[bool, Option("--version", callback=_version, is_eager=True, help=_print)]
_limit = "Refuse an .npz file that unpacks to more gigabytes. \\[default: half of the memory]"
MaxGigabytes = Annotated[float | None, Option(envvar="PHGCN_MAX_GB", help=_limit)]


@app.callback(invoke_without_command=True)
def _phgcn(context: typer.Context, version: Version = False, max_gb: MaxGigabytes = None) -> None:
    if max_gb is not None:
        os.environ["PHGCN_MAX_GB"] = str(max_gb)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("train", cls=training.ListsModels)(training.train)
app.command("evaluate")(using.evaluate)
app.command("predict")(using.predict)
app.command("tune", cls=training.ListsModels)(tuning.tune)
app.command("plot")(using.plot)
app.command("export")(using.export)
app.command("compare")(using.compare)
app.command("explore")(using.explore)
app.command("partition")(partition.partition)
app.command("graphs")(about.graphs)
app.command("doctor")(about.doctor)


# Commands of the package phgcn-lab. A source tree in PYTHONPATH has them too, but no metadata that
# declares them.
LAB_COMMANDS = {"reproduce": "phgcn_lab.cli.reproduce:app"}


def _add_commands_of_packages() -> None:
    """Adds the entry points ``phgcn.commands``: functions or Typer apps of any package."""
    group = "phgcn.commands"
    points = {name: EntryPoint(name, place, group) for name, place in LAB_COMMANDS.items()}
    installed = entry_points(group=group)
    # metadata of an earlier lab may declare commands that the source no longer has
    points |= {p.name: p for p in installed if not p.value.startswith("phgcn_lab.")}
    for name, point in points.items():
        try:
            command = point.load()
        except ModuleNotFoundError as error:
            if error.name != "phgcn_lab":
                raise
            _add_missing(name)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


def _add_missing(name: str) -> None:
    """Adds a command that says how to get the lab, for any arguments."""
    get = "pip install ./lab in a clone of the repository"
    text = f"phgcn {name} needs the package phgcn-lab: {get}"

    def missing() -> NoReturn:
        raise ValueError(text)

    any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=text, context_settings=any_arguments)(missing)


_add_commands_of_packages()


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    _ignore_warnings()
    try:
        code = app(arguments, prog_name="phgcn", standalone_mode=False)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except Exception as error:
        return _failed(error)
    if code == EXIT_INTERRUPTED:
        return _say("interrupted", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else 0


def _ignore_warnings() -> None:
    """Hides warnings for programs that call torch and PyG."""
    said = (".*: keys left out, as they are not known", ".*: batch is left out")  # by commands
    for message in ("Sparse CSR tensor support", "Sparse invariant checks", *said):
        warnings.filterwarnings("ignore", message=message)
    for category in (FutureWarning, DeprecationWarning):
        warnings.filterwarnings("ignore", category=category, module=r"(?!phgcn(_lab)?\b)")


def _failed(error: Exception) -> int:
    """Prints an error on one line; returns 2 for wrong input, 1 for a failure."""
    if os.environ.get("PHGCN_TRACEBACK"):
        traceback.print_exception(error)
    cause = error.__cause__ or error.__context__
    if not str(error) and isinstance(cause, EOFError):  # of which Typer makes an empty Abort
        return _failed(cause)
    if hasattr(error, "format_message"):  # a wrong option or argument
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "phgcn"
        text = str(error.format_message()).rstrip(".")
        return _say(f"{text}; see {command} --help", EXIT_BAD_INPUT)
    for line in getattr(error, "lines", [])[:-1]:  # a graph file may have several faults
        _say(line, EXIT_BAD_INPUT)
    if isinstance(error, ValueError):
        return _say([str(error), *getattr(error, "lines", [])][-1], EXIT_BAD_INPUT)
    if isinstance(error, OSError):
        if error.filename:
            return _say(f"{error.filename}: {error.strerror}", EXIT_FAILURE)
        return _say(f"{error.strerror or error} (PHGCN_TRACEBACK=1 shows where)", EXIT_FAILURE)
    if isinstance(error, RuntimeError) and type(error) is not RuntimeError:  # one of ours
        return _say(str(error), EXIT_FAILURE)
    return _say(f"{type(error).__name__}: {error} (PHGCN_TRACEBACK=1 shows where)", EXIT_FAILURE)


def _say(text: str, code: int) -> int:
    # what all processes of torchrun find, one of them says
    if os.environ.get("RANK", "0") == "0" or code == EXIT_FAILURE:
        print(f"phgcn: {printable(text)}", file=sys.stderr)
    return code


def main() -> None:
    # as Ctrl-C: training writes a checkpoint before it ends
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run()
    if code == EXIT_INTERRUPTED:
        # Without waiting for threads: one of Optuna's goes on for ever if the interrupt came just
        # before it was to be stopped.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
