"""Progress of a long command on standard error, with the time left."""

import sys
import time


class Progress:
    """One line a step; on a terminal a single line that is written again.

    Parameters
    ----------
    steps : int
        Steps to come.
    """

    def __init__(self, steps: int):
        self.steps, self.done = steps, 0
        self.began = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Write `text`, which the next one replaces; on a terminal only."""
        if self.terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def step(self, text: str) -> None:
        """A step is done: `text` and the time left."""
        self.done += 1
        spent = time.monotonic() - self.began
        left = spent / self.done * (self.steps - self.done)
        line = f"{text}, {_duration(spent)}" + (f", {_duration(left)} left" if left else "")
        if self.terminal:
            self.show(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the line as it is."""
        if self.terminal:
            print(file=sys.stderr)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
