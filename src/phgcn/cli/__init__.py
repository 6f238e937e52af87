r"""The command line: parses, calls, prints.  Nothing heavy is imported until a command runs."""


def main() -> None:
    """Runs the command ``phgcn``."""
    from .app import main as run

    run()
