"""A local worker process. It reads calls and writes outcomes, both as lines of JSON.

A worker stops at the end of its input, whether the sweep closed it or was killed, so that no worker outlives its sweep.
A training in progress gets SIGTERM, as from a scheduler, and has some seconds to save its state.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict
from typing import TextIO

from ntmp_cli.errors import InterruptedRunError
from ntmp_cli.sweeps.calls import Call, perform

GRACE_SECONDS = 10


def main() -> None:
    """Carry out calls until there are no more; never returns."""
    # Outcomes go to the real stdout, and nothing else does.
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    calls: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    code = 0
    try:
        while (line := calls.get()) is not None:
            _serve(Call(**json.loads(line)), outcomes)
    except (InterruptedRunError, KeyboardInterrupt):
        code = InterruptedRunError.exit_code
    except Exception:
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)  # the listening thread waits for input that may never come


def _serve(call: Call, outcomes: TextIO) -> None:
    # What libraries print, and the message of a crash, belong to the log of the call.
    if call.log is not None:
        file = os.open(call.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    outcome = perform(call)
    outcomes.write(json.dumps(asdict(outcome)) + "\n")
    outcomes.flush()


def _listen(calls: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        calls.put(line)
    calls.put(None)
    # An idle process has ended before this; a busy one gets SIGTERM, then ends after the grace period.
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
