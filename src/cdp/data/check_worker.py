"""A process of its own that decodes images for the scan; a decoder that crashes takes down only this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from cdp.data.images import Source, decode
from cdp.errors import InputError


def find_unreadable(source: Source, locations: Sequence[str]) -> dict[str, str]:
    """Location -> reason for those that cannot be read or decoded."""
    reasons = {}
    for location in locations:
        try:
            decode(source.read(location))
        except InputError as error:
            reasons[location] = str(error)
    return reasons


class CheckWorker:
    """A worker process; it is asked and answers in lines of JSON. Not to be shared between threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def scan(self, locations: Sequence[str]) -> dict[str, str]:
        """`find_unreadable` in the worker; where that kills it, the image that does so is found by halving."""
        answer = self._ask(locations)
        if answer is not None:
            return answer
        if len(locations) == 1:
            return {locations[0]: "the image makes its decoder crash; leave it out."}
        middle = len(locations) // 2
        return self.scan(locations[:middle]) | self.scan(locations[middle:])

    def _ask(self, locations: Sequence[str]) -> dict[str, str] | None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cdp.data.check_worker", self._root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers.
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(list(locations)) + "\n")
            self._process.stdin.flush()
            answer: dict[str, str] = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self.stop()
            return None
        return answer

    def stop(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def serve(root: str) -> None:
    """Answer one line of standard input after the other."""
    source = Source(root)
    for line in sys.stdin:
        print(json.dumps(find_unreadable(source, json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
