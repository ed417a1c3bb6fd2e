"""Commands in the place of audio files, as Kaldi's wav.scp allows: `sph2pipe -f wav a.sph |`.

They run where the user has said `allow_pipes: true`, and nowhere else. Each reading runs the command once
more, through /bin/sh, without input; what it writes goes to an unnamed temporary file, and is read from there
as any file is.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass

from statsprep.data.verdicts import UtteranceError, Verdict

TIMEOUT_S = 300.0
_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class AudioCommand:
    """A command that writes an audio file to its standard output."""

    command: str

    def __str__(self) -> str:
        return f"command {self.command!r}"

    def open_descriptor(self) -> int:
        """Run the command; returns a descriptor of what it wrote, for the caller to close.

        Raises:
            UtteranceError: it failed, or took longer than 300 s.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
            code = self._run(output.fileno(), messages.fileno())
            if code:
                size = messages.seek(0, os.SEEK_END)
                messages.seek(max(0, size - _TAIL_BYTES))
                tail = messages.read().decode(errors="replace").strip()
                raise UtteranceError(
                    f"{self}: ended with exit code {code} ({_last_line(tail)}); run it by hand to see why",
                    kind=Verdict.UNREADABLE,
                    detail=tail,
                )
            output.seek(0)
            return os.dup(output.fileno())

    def _run(self, output: int, messages: int) -> int:
        process = subprocess.Popen(
            ["/bin/sh", "-c", self.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=messages,
            start_new_session=True,
        )
        try:
            return process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UtteranceError(
                f"{self}: still running after {TIMEOUT_S:g} s and stopped; run it by hand to see why",
                kind=Verdict.UNREADABLE,
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it left running, it or its children
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_line(text: str) -> str:
    return text.splitlines()[-1][:200] if text else "no message"
