"""Commands in processes of their own that are killed at a chosen moment.

They are forked from a process that has imported everything already, and done nothing else: so a start takes no time.
"""

import itertools
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["cdp.cli.main", "cdp_lab.cli.lab_main", "cdp_lab.study.execute", "cdp.nets.joint", "cdp.nets.extract"]
)


def kill_when(words: Sequence[str], is_moment: Callable[[dict], bool]) -> None:
    """Run `cdp WORDS --json`, or `cdp-lab study …`, and kill it, as `kill -9` does, after the first event for which this holds."""
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
    if words[0] == "study":
        from cdp_lab.cli.lab_main import app
    else:
        from cdp.cli.main import app
    app(words)


def kill_at(words: Sequence[str], moment: int) -> bool:
    """Run `cdp WORDS`, killed as by `kill -9` when it tells of its progress the `moment`-th time; whether it came to that."""
    process = _PROCESSES.Process(target=_run_until, args=(list(words), moment))
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def _run_until(words: Sequence[str], moment: int) -> None:
    from cdp.cli.main import app
    from cdp.runtime import progress

    moments = itertools.count(1)

    def tell(*_: object) -> None:
        if next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    progress.progress_bars = lambda _is_shown: nullcontext(tell)
    app([*words, "--quiet"], standalone_mode=False)
