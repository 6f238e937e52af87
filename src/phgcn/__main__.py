r"""``python -m phgcn`` is the command ``phgcn``."""

from phgcn.cli import main

if __name__ == "__main__":
    main()
