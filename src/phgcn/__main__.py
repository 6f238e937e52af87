"""``python -m phgcn``: the command ``phgcn``, for launchers such as ``torchrun``."""

from phgcn.cli import main

if __name__ == "__main__":
    main()
