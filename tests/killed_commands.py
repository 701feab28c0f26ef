"""Commands in processes of their own that are killed at a chosen moment.

They are forked from a process that has imported everything already, and done nothing else: so a start takes no time.
"""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["cdp.cli.main", "cdp.lab.study.execute", "cdp.nets.joint", "cdp.nets.extract"]
)


def kill_when(words: Sequence[str], is_moment: Callable[[dict], bool]) -> None:
    """Run `cdp WORDS --json` and kill it, as `kill -9` does, after the first event for which this holds."""
    reader, writer = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_run, args=([*words, "--json"], writer))
    process.start()
    writer.close()
    with os.fdopen(os.dup(reader.fileno())) as output:
        has_come = any(is_moment(json.loads(line)) for line in output)
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    reader.close()
    assert has_come, "the moment never came"


def _run(words: Sequence[str], output: Connection) -> None:
    os.dup2(output.fileno(), 1)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    from cdp.cli.main import app

    app(words)
