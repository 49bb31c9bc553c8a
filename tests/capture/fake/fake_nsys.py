"""As much of nsys as the command meets: help, a session, a report when it stops, and what is hard about it.

It writes to the streams that it is given, forgets the exit code of the program, and dies of signals.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HELP = """
\t-c, --capture-range=

\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.

\t--capture-range-end=

\t   Possible values are 'none', 'stop' or 'stop-shutdown'.

\t--cpuctxsw=

\t   Possible values are 'process-tree' or 'none'.

\t-d, --duration=

\t   Collection duration in seconds.

\t-e, --env-var=

\t   Set environment variables.

\t-f, --force-overwrite=

\t   Possible values are 'true' or 'false'.

\t--kill=

\t   Possible values are 'none', 'sigkill', 'sigterm', or signal number.

\t-o, --output=

\t   Output report filename.

\t-p, --nvtx-capture=

\t   Possible values are: `range@domain' to specify both range and domain.

\t-s, --sample=

\t   Possible values are 'process-tree' or 'none'.

\t--session-new=

\t   Start the collection in a new named session.

\t-t, --trace=

\t   Possible values are 'cuda', 'nvtx', 'cuda-sw' or 'none'.

\t-y, --delay=

\t   Collection start delay in seconds.

\t-Y, --start-later=

\t   Possible values are 'true' or 'false'.
"""
SESSIONS = Path(os.environ["FAKE_NSYS"])


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(words):
    if words == ["--version"]:
        say("NVIDIA Nsight Systems version 2025.1.1.1-2511v0")
    elif words == ["profile", "--help"]:
        say(HELP)
    elif words == ["export", "--help"]:
        say("\n\t-t, --type=\n\n\t   Possible formats are: sqlite json.\n\n\t-o, --output=\n\n\t   Path.\n")
    elif words[0] == "profile":
        return profile(words[1:])
    elif words[0] in {"start", "stop"}:
        return control(words[0], words[1].partition("=")[2])
    else:
        options = dict(word[2:].split("=", 1) for word in words[1:-1] if "=" in word)
        Path(options["output"]).write_bytes(Path(os.environ["FAKE_EXPORT"]).read_bytes())
    return 0


def profile(words):
    """Run the program; write the report at its end, unless a session did."""
    place = next(index for index, word in enumerate(words) if not word.startswith("-"))
    options = dict(word[2:].split("=", 1) for word in words[:place])
    report = Path(options["output"].replace("%%", "%") + ".nsys-rep")
    (SESSIONS / "profile").write_text(json.dumps(words[:place]))
    session = options.get("session-new")
    if session is not None:
        (SESSIONS / session).write_text(json.dumps({"report": str(report), "options": words[:place]}))
    subprocess.run(words[place:], check=False, process_group=0)
    if session is None and os.environ.get("FAKE_NSYS_REPORT", "1") == "1":
        report.write_text("report")
    say("Generated:\n    " + str(report))
    return 0


def control(verb, session):
    """Begin or end a session; the report is there soon after its end."""
    found = SESSIONS / session
    if not found.exists() or os.environ.get("FAKE_NSYS_FAILS") == verb:
        say("There is no session " + session)
        return 1
    with (SESSIONS / "calls").open("a") as file:
        file.write(verb + "\n")
    if verb == "stop" and os.environ.get("FAKE_NSYS_REPORT", "1") == "1":
        Path(json.loads(found.read_text())["report"]).write_text("report")
    return 0


sys.exit(main(sys.argv[1:]))
