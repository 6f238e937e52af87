r"""What a shell completes when the tab key is pressed."""

import subprocess

import pytest
from installed import COMMAND, environment


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("phgcn tr", {"train"}),
        ("phgcn train --prot", {"--protocol"}),
        ("phgcn train texas --model glo", {"global-gnn"}),
        ("phgcn train texas --model phgcn --set decay_l", {"decay_local="}),
        ("phgcn train texas --model phgcn --set loc", set()),
        ("phgcn tune texas --set loc", {"local=", "local_epochs="}),
    ],
)
def test_commands_options_models_and_settings_are_completed(typed, wanted):
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    env = environment(_PHGCN_COMPLETE="complete_bash", **asked)
    found = subprocess.run([str(COMMAND)], env=env, capture_output=True, text=True, timeout=100)
    assert set(found.stdout.split()) == wanted
