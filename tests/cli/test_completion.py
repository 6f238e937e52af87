r"""What a shell completes when the tab key is pressed."""

import subprocess

import pytest
from installed import COMMAND, environment


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("phgcn train texas --model glo", {"global-gnn"}),
        ("phgcn train texas --model phgcn --set decay_l", {"decay_local="}),
        ("phgcn train texas --model phgcn --set loc", set()),
        ("phgcn tune texas --set loc", {"local=", "local_epochs="}),
    ],
)
def test_names_of_models_and_settings_are_completed(typed, wanted):
    words = environment(_PHGCN_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1))
    found = subprocess.run([str(COMMAND)], env=words, capture_output=True, text=True, check=False, timeout=100)
    assert set(found.stdout.split()) == wanted
