import json
import os
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import typer
from small_graphs import small_graph

from phgcn.cli import app
from phgcn.registry import model_names
from phgcn.train import settings as config
from phgcn.train.candidates import candidates

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PHGCN_DATA", "/nowhere"))
THERE = all((DATA / f"{name}.npz").is_file() for name in ("texas", "cornell"))
NAMED = pytest.mark.skipif(not THERE, reason="PHGCN_DATA holds no texas and cornell")


def blocks(document):
    """The fenced blocks of a document, in order, each with its language."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("document", "least"),
    [
        ("docs/own-graphs.md", 10),
        pytest.param("docs/explorer.md", 5, marks=NAMED),
        pytest.param("docs/commands.md", 10, marks=NAMED),
        pytest.param("lab/README.md", 10, marks=NAMED),
    ],
)
def test_every_command_of_a_document_runs(document, least, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_document(document, capsys) >= least


def run_document(document, capsys):
    """Runs the blocks of a document one after the other, in the current folder; returns the number
    of commands."""
    for package in ("optuna", "matplotlib", "plotly"):
        pytest.importorskip(package)
    ran = 0
    for language, text in blocks(document):
        if language == "python":
            exec(compile(text, document, "exec"), {"__name__": "__main__"})
            continue
        assert language == "console", f"a block of {language} is not run by this test"
        for line in text.splitlines():
            words = shlex.split(line)
            assert words[0] == "phgcn"
            assert app.run(words[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
            ran += 1
    return ran


def test_the_tutorial_runs_and_global_attention_wins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_document("docs/tutorial.md", capsys) >= 12
    scores = {
        name: json.loads(Path("runs", name, "result.json").read_text())["test"]["mean"]
        for name in ("phgcn", "mlp", "gcn", "gat", "songs", "tuned")
    }
    assert scores["phgcn"] > 0.8 and scores["songs"] > 0.9, scores
    assert all(scores["phgcn"] > scores[other] + 0.2 for other in ("mlp", "gcn", "gat")), scores
    assert scores["tuned"] >= scores["phgcn"] - 0.05
    assert json.loads(Path("runs/phgcn/run.json").read_text())["settings"]["epochs"] == 70
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    ids = [line.split(",")[0] for line in Path("songs/nodes.csv").read_text().splitlines()]
    assert set(re.findall(r"(?:song|cover)-\d+", text)) <= set(ids)
    lines = Path("attention.csv").read_text().splitlines()
    assert "song-17" in [line.split(",")[4] for line in lines if line.startswith("global")]
    folders = (Path("runs/phgcn/plots"), Path("tune/songs/plots"))
    drawn = {path.name for folder in folders for path in folder.iterdir()}
    assert set(re.findall(r"`([a-z-]+\.png)`", text)) | {"history.png"} == drawn
    assert "'song-17'" in capsys.readouterr().out.splitlines()[-1]
    assert "epochs" not in Path("tune/songs/config.toml").read_text().replace("# epochs", "")


def settings_table():
    rows = ["| setting | means | default | models |", "| --- | --- | --- | --- |"]
    for entry in fields(config.Settings):
        models = [model for model in model_names() if entry.name in config.keys(model)]
        shown = (model for model in models if not model.endswith("-residual"))
        named = dict.fromkeys(re.sub("^(strong|geom-gcn)-.*", r"\1-*", model) for model in shown)
        who = "all" if len(models) == len(model_names()) else ", ".join(f"`{m}`" for m in named)
        meaning, default = entry.metadata["meaning"], config._toml(entry.default)
        rows.append(f"| `{entry.name}` | {meaning} | `{default}` | {who} |")
    return "\n".join(rows)


def test_the_table_of_settings_is_that_of_the_code():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- settings -->\n\n(.*?)\n\n<!-- end settings -->", text, flags=re.DOTALL)
    assert found is not None and found[1] == settings_table()


VARYING = (
    *("local", "num_layers", "hidden_channels", "norm", "learning_rate", "weight_decay"),
    *("dropout", "input_dropout", "heads", "decay"),
)


def candidates_table():
    """The candidates of a graph of numbers, and that of words, with the settings that vary."""
    data = small_graph(90)
    data.x = torch.eye(90)
    words = [found for found in candidates(data, "cpu") if found.name == "words"]
    data.x = torch.randn(90, 8)
    heading = ["candidate", *(f"`{name}`" for name in VARYING)]
    rows = []
    for found in candidates(data, "cpu") + words:
        known = config.keys(found.model)
        cells = [str(getattr(found.settings, key)) if key in known else "" for key in VARYING]
        if not found.attention:
            cells[-2:] = ["", ""]
        rows.append([found.name, *cells])
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def test_the_table_of_candidates_is_that_of_the_search():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    part = r"<!-- candidates -->\n\n(.*?)\n\n<!-- end candidates -->"
    found = re.search(part, text, flags=re.DOTALL)
    assert found is not None and found[1] == candidates_table()


def commands(group, prefix="phgcn"):
    """Every command of a group by its full name, those of its groups too."""
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full, command


ALL_COMMANDS = dict(commands(typer.main.get_command(app.app)))


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_option_of_a_command_is_in_its_part_of_the_reference(name):
    pages = ("docs/commands.md", "lab/README.md")
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    part = re.search(rf"^## {name}\b.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert part is not None, f"no heading '## {name}'"
    options = [
        option.opts
        for option in ALL_COMMANDS[name].params
        if option.param_type_name == "option" and not option.hidden
    ]
    assert ["--json"] in options and "Every command takes `--json`" in text
    options.remove(["--json"])
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", part[0]))
    assert [flags for flags in options if not shown & set(flags)] == []


def test_what_own_graphs_says_of_its_table_is_what_the_command_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    texts = {kind: text for kind, text in reversed(blocks("docs/own-graphs.md"))}
    python, command = texts["python"], texts["console"]
    exec(compile(python, "own-graphs.md", "exec"), {"__name__": "__main__"})
    words = shlex.split(command)[1:]
    assert app.run([*words, "--model", "mlp", "--set", "epochs=1"]) == 0
    text = (ROOT / "docs" / "own-graphs.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n(graph .*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert shown is not None and capsys.readouterr().err.startswith(shown[1])
