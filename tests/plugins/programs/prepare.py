"""The program of a prepare job that does not prepare: the variable BEHAVIOUR says what it does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainyard.claims import Claim
from trainyard.errors import JobError, TransientError
from trainyard.job import Run, run_job
from trainyard.specs import Prepare

PIDS = Path(os.environ["PIDS"])
BEHAVIOUR = os.environ["BEHAVIOUR"]


def work(spec: Prepare, run: Run) -> dict[str, Any]:
    """Behave, and return a result of the agreed form."""
    PIDS.with_name("environment.json").write_text(json.dumps(dict(os.environ)))
    print(f"the source is {spec.source}", flush=True)
    if BEHAVIOUR == "fail":
        raise JobError("the source has no rows.", "Give one that has.")
    if BEHAVIOUR == "waver":
        raise TransientError("the store is full.", "Free some space.")
    if BEHAVIOUR == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if BEHAVIOUR == "leak":
        print("opening jdbc:postgresql://me:open-sesame@host/db", flush=True)
        raise JobError("cannot open s3://x?token=abc-def-ghi.", "Check it.")
    if BEHAVIOUR == "stubborn":
        stay(run)
    for epoch in range(4):
        run.events.progress("prepare", epoch + 1, 4, "part", rows=100 * epoch, share=0.25)
    run.events.note("4 parts were read")
    return {
        "outputs": {"dataset": f"{spec.run_dir}/data"},
        "rows": {"in": 5, "out": 5, "quarantined": 0, "train": 3, "validation": 1, "test": 1},
        "fingerprints": {"dataset": "abc"},
    }


def stay(run: Run) -> None:
    """Ignore requests to end, with children in another group, in another session, and orphaned."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = [sys.executable, "-c", "import signal, time; signal.pause()"]
    ignored = f"import signal; signal.signal({signal.SIGTERM:d}, signal.SIG_IGN); "
    sleep[2] = ignored + sleep[2]
    group = subprocess.Popen(sleep, process_group=0)
    session = subprocess.Popen(sleep, start_new_session=True, env={})
    # In the session of spark-submit, but without its environment and without a parent.
    shell = ["sh", "-c", "env -i sleep 600 >/dev/null 2>&1 & echo $!"]
    orphan = int(subprocess.run(shell, capture_output=True, check=True).stdout)
    for pid in (os.getpid(), group.pid, session.pid, orphan):
        (PIDS / str(pid)).touch()
    run.events.note("staying")
    run.events.close()
    PIDS.with_name("staying").touch()
    time.sleep(600)


if __name__ == "__main__":
    (PIDS / str(os.getpid())).touch()
    if BEHAVIOUR == "swallow":
        print("caught an error and went on", flush=True)
        sys.exit(0)
    if BEHAVIOUR == "crash":
        sys.exit("Traceback: an import failed")
    if BEHAVIOUR == "outrun":
        other = Claim.take(Prepare.parse(sys.argv[1:]).run_dir)
    code = run_job(Prepare, work)
    if BEHAVIOUR in ("leave", "leave quietly"):
        quietly = subprocess.DEVNULL if BEHAVIOUR == "leave quietly" else None
        left = subprocess.Popen(["sleep", "600"], stdout=quietly, stderr=quietly)
        (PIDS / str(left.pid)).touch()
    sys.exit(3 if BEHAVIOUR == "stumble" else code)
