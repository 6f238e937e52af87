r"""Progress of the experiments, on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...cli.display import Display, duration

if TYPE_CHECKING:
    from ..workers import Progress


class JobsDisplay(Display):
    """The jobs that run, how many are done, and the time left."""

    def __init__(self) -> None:
        super().__init__(total=1.0)

    def update(self, progress: Progress) -> None:
        left = "" if progress.left is None else f"about {duration(progress.left)} left"
        counted = f"{progress.done} of {progress.total} done"
        if progress.kind in ("done", "failed"):
            self.say(": ".join(part for part in (f"{counted}, {progress.name} {progress.kind}", progress.text) if part))
        elif progress.kind == "running" and self.due():
            others = len(progress.running) - 1
            beside = f", {others} beside" if others else ""
            self.show(progress.share, f"{counted}; {progress.name}: {progress.text}{beside}", left)


class ShareDisplay(Display):
    """What is being measured, and which share of all is done."""

    def __init__(self) -> None:
        super().__init__(total=1.0)

    def update(self, text: str, share: float) -> None:
        if self.due():
            self.show(share, text, "")
