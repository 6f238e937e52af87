r"""Lists all measurements, or runs one.

python lab/bench                       # what can be measured
python lab/bench crossing --quick      # a small version of one, to see that it works
python lab/bench crossing --help       # its options
"""

from __future__ import annotations

import sys

import registry


def main() -> None:
    registry.load_all()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        for name, about in sorted(registry.REGISTRY.items()):
            print(f"{name:18} {about.about}{' (needs a GPU)' if about.needs_gpu else ''}")
        return
    name = sys.argv[1]
    if name not in registry.REGISTRY:
        allowed = ", ".join(sorted(registry.REGISTRY))
        raise SystemExit(f"the measurement is {name!r}; allowed: {allowed}")
    registry.run(name, sys.argv[2:])


if __name__ == "__main__":
    main()
