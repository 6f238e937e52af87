import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_folders import outcome
from small_graphs import small_graph

from phgcn.train import Plan, Run, Settings

SETTINGS = Settings(hidden_channels=4, heads=2, epochs=3, global_layers=1, dropout=0.4, patience=50)


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def data():
    return small_graph()


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The outcome of a run that was begun with all epochs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    Run.create(folder, plan(replace(SETTINGS, epochs=6)), data).train(data)
    return outcome(folder)


def plan(settings=SETTINGS):
    return Plan("small", model="global-gnn", splits=2, settings=settings)


def finished(data, folder, settings=SETTINGS):
    run = Run.create(folder, plan(settings), data)
    run.train(data)
    return run


def test_a_finished_run_with_more_epochs_has_the_bits_of_one_that_was_begun_with_them(
    data, whole, tmp_path
):
    finished(data, tmp_path / "run").extend(epochs=6)
    again = Run.open(tmp_path / "run")
    assert again.plan.settings.epochs == 6 and not (tmp_path / "run" / "result.json").exists()
    assert "epochs = 6" in (tmp_path / "run" / "config.toml").read_text()
    again.train(data)
    assert outcome(tmp_path / "run") == whole


def test_cut_off_at_any_file_an_extension_still_works(data, whole, tmp_path, monkeypatch):
    original, unlink = Path.replace, Path.unlink
    cuts = 0
    for cut in range(50):
        run, left = finished(data, tmp_path / f"cut-{cut}"), [cut]

        def counted(function, left=left):
            def call(self, *arguments, **options):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return function(self, *arguments, **options)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", counted(original))
            patched.setattr(Path, "unlink", counted(unlink))
            try:
                run.extend(epochs=6)
                break
            except Killed:
                cuts += 1
        again = Run.open(run.folder)
        again.extend(epochs=6)
        again.train(data)
        assert outcome(run.folder) == whole, f"cut at file operation {cut}"
    assert cuts >= 5  # the result, the weights of two splits, the settings, the plan


def test_more_patience_continues_what_patience_ended(data, tmp_path):
    run = finished(
        data, tmp_path / "run", replace(SETTINGS, epochs=40, patience=1, learning_rate=0.5)
    )
    before = [row["epochs"] for row in run.result()["splits"]]
    assert max(before) < 40
    run.extend(patience=40)
    assert [row["epochs"] for row in run.train(data)["splits"]] == [40, 40]
    assert json.loads((run.folder / "run.json").read_text())["settings"]["patience"] == 40


def test_fewer_epochs_and_a_missing_state_are_refused_and_nothing_is_changed(data, tmp_path):
    run = finished(data, tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"epochs is 2; allowed: 3 or more, as .*run was begun with"
    ):
        run.extend(epochs=2)
    (run.folder / "last-split-01.safetensors").unlink()
    with pytest.raises(
        ValueError,
        match=r"split-01 cannot have more epochs, as .*last-split-01.safetensors is missing",
    ):
        run.extend(epochs=6)
    assert run.result()["epochs"] == 6
