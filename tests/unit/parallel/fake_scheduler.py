"""Stands for the programs of any batch scheduler; the first argument says which. Jobs are processes of this
machine, listed in the folder that FAKE_SCHEDULER names.

A file `busy` there holds how many further submissions fail as if the scheduler did not answer.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["FAKE_SCHEDULER"])
ANSWERS = {
    "sbatch": "Submitted batch job {}", "qsub": "{}.server", "msub": "\n{}\n",
    "bsub": "Job <{}> is submitted to queue <normal>.", "oarsub": "[ADMISSION RULE]\nOAR_JOB_ID={}",
    "condor_submit": "Submitting job(s).\n1 job(s) submitted to cluster {}.",
}  # fmt: skip


def condor_words(script: str) -> list[str]:
    """The command of a submit description, whose words are quoted in HTCondor's own way."""
    arguments = re.search(r'^Arguments = "(.*)"$', script, re.M)[1].replace('""', '"')
    words = re.findall(r"(?:[^\s']|'(?:[^']|'')*')+", arguments)
    return ["/bin/sh", *(re.sub(r"'((?:[^']|'')*)'", lambda m: m[1].replace("''", "'"), w) for w in words)]


def submit(program: str, words: list[str]) -> int:
    busy = HOME / "busy"
    if busy.exists() and int(busy.read_text()) > 0:
        busy.write_text(str(int(busy.read_text()) - 1))
        print("error: Batch job submission failed: Socket timed out on send/recv operation", file=sys.stderr)
        return 1
    number = len(list(HOME.glob("job.*"))) + 1
    if program == "oarsub":
        script = words[-1]
    else:
        script = Path(words[-1]).read_text(encoding="utf-8") if words else sys.stdin.read()
    (HOME / f"script.{number}").write_text(script, encoding="utf-8")
    command = condor_words(script) if program == "condor_submit" else ["bash", "-c", script]
    with open(HOME / f"log.{number}", "w") as log:
        job = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    (HOME / f"job.{number}").write_text(str(job.pid))
    print(ANSWERS[program].format(number))
    return 0


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> int:
    program, *words = sys.argv[1:]
    if program in ANSWERS:
        return submit(program, words)
    if program in ("scancel", "qdel", "canceljob", "bkill", "oardel", "condor_rm"):
        pid = int((HOME / f"job.{words[-1].split('.')[0]}").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
        return 0
    for path in HOME.glob("job.*"):
        if is_running(int(path.read_text())):
            print(path.suffix[1:], "RUN R RUN R queue")
    return 0


sys.exit(main())
