"""The command line: parses, calls, prints. Nothing heavy is imported until a command runs."""

import os


def main() -> None:
    # Before torch is imported: threads that wait by spinning are slow beside other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from .app import main as run

    run()
