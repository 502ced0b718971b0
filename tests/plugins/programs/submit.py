"""A spark-submit without Spark: starts the application and answers with its exit code."""

import os
import subprocess
import sys
from pathlib import Path

application = next(i for i, word in enumerate(sys.argv) if word.endswith("/prepare.py"))
Path(os.environ["PIDS"], str(os.getpid())).touch()
Path(os.environ["PIDS"]).with_name("submit.argv").write_text("\n".join(sys.argv))
if "--properties-file" in sys.argv:
    given = Path(sys.argv[sys.argv.index("--properties-file") + 1])
    kept = Path(os.environ["PIDS"]).with_name("properties")
    kept.write_text(f"{given.stat().st_mode & 0o777:o}\n{given.read_text()}")
if "cluster" in sys.argv:
    print("INFO Client: Submitted application application_1796000000000_0007", flush=True)
driver = subprocess.Popen([os.environ["PYSPARK_DRIVER_PYTHON"], *sys.argv[application:]])
code = driver.wait()
if "cluster" in sys.argv:
    print(f"INFO LoggingPodStatusWatcherImpl: exit code: {code}", flush=True)
sys.exit(code if code >= 0 else 128 - code)
