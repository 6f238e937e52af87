r"""``python -m phgcn``: the command ``phgcn``, which ``torchrun`` starts so."""

from phgcn.cli import main

if __name__ == "__main__":
    main()
