import json

import pytest
from commands import code_of
from small_graphs import small_graph, write_tables


@pytest.fixture
def said(capsys):
    """Calls the command; returns its exit code, and what is on stdout and stderr."""

    def run(*arguments):
        capsys.readouterr()
        return code_of(*arguments), *capsys.readouterr()

    return run


@pytest.fixture
def answer(said):
    """Calls the command with ``--json``; returns its answer."""

    def run(*arguments):
        code, out, err = said(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture
def graph(tmp_path):
    return write_tables(small_graph(), tmp_path / "small")
