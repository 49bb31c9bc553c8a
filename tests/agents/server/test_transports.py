"""The server over its transports: streams and HTTP, two clients at once, a client without the SDK."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the SDK of the protocol is absent: pip install mcp")

import anyio
from mcp import Client, StdioServerParameters

from tests.agents.conftest import CALLS, run_apart
from wallscope.agents.tools import TOOLS

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@contextlib.contextmanager
def serve_over_http(folder):
    """A server of its own on a free port of this machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "wallscope", "mcp", str(folder), "--http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield process.pid, port
        finally:
            process.terminate()


def post(port, **headers):
    """The status of a request with these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    known = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body, known | headers)
    status = connection.getresponse().status
    connection.close()
    return status


@LINUX
def test_two_clients_at_once_over_http_on_this_machine_alone(folder):
    async def run(port):
        answers = {}

        async def use(name, tool):
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                answers[name] = await client.call_tool(tool, CALLS[tool])

        async with anyio.create_task_group() as group:
            group.start_soon(use, "one", "time_breakdown")
            group.start_soon(use, "two", "gaps")
        return answers

    with serve_over_http(folder) as (pid, port):
        answers = run_apart(run, port)
        listening = [
            line.split()[1]
            for kind in ("tcp", "tcp6")
            for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
        ]
        statuses = {
            "own": post(port),
            "rebound": post(port, Host=f"attacker.example:{port}"),
            "other port": post(port, Host=f"127.0.0.1:{port - 1}"),
            "foreign page": post(port, Origin="http://attacker.example"),
        }
        status = Path(f"/proc/{pid}/status").read_text()

    assert answers["one"].structured_content["causes"]
    assert answers["two"].structured_content["rows"]
    assert listening == [f"0100007F:{port:04X}"]
    assert statuses["own"] not in {403, 421}
    assert (statuses["rebound"], statuses["other port"], statuses["foreign page"]) == (421, 421, 403)
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident < 200 * 1024


def test_over_standard_streams_the_server_ends_with_its_client(folder):
    async def run():
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "wallscope", "mcp", str(folder)], env={**os.environ}
        )
        async with Client(parameters) as client:
            return await client.call_tool("explain", CALLS["explain"])

    started = time.monotonic()
    result = run_apart(run)

    assert not result.is_error
    assert time.monotonic() - started < 60


def test_a_client_without_the_sdk_is_answered(folder):
    """Lines of JSON-RPC as the protocol has them, of an older version, written by hand."""
    version = "2025-06-18"
    sent = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "explain", "arguments": CALLS["explain"]}},
        {"id": 4, "method": "tools/call", "params": {"name": "gaps", "arguments": {"file": "../x"}}},
        {"id": 5, "method": "tools/call", "params": {"name": "explain", "arguments": {"word": "\ud800"}}},
    ]
    command = [sys.executable, "-m", "wallscope", "mcp", str(folder)]
    heard = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for message in sent:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            while "id" in message and message["id"] not in heard:
                line = json.loads(process.stdout.readline())
                heard[line.get("id")] = line
        process.stdin.close()
        assert process.wait(timeout=60) == 0

    assert heard[1]["result"]["protocolVersion"] == version
    assert [tool["name"] for tool in heard[2]["result"]["tools"]] == list(TOOLS)
    assert (
        heard[3]["result"]["structuredContent"]["verdict"]
        == json.loads(heard[3]["result"]["content"][0]["text"])["verdict"]
    )
    assert heard[4]["result"]["isError"]


@pytest.mark.slow
def test_a_first_call_takes_as_long_as_the_command(folder):
    """The shortest of several: other work on the machine makes either longer."""

    async def call():
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "wallscope", "mcp", str(folder), "--no-cache"],
            env={**os.environ},
        )
        async with Client(parameters) as client:
            started = time.monotonic()
            result = await client.call_tool("analyze", CALLS["analyze"])
            assert not result.is_error
            return time.monotonic() - started

    def run():
        started = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "wallscope",
            "analyze",
            folder / "run.sqlite",
            "--brief",
            "--no-cache",
        ]
        subprocess.run(command, check=True, capture_output=True)
        return time.monotonic() - started

    commands, calls = zip(*((run(), run_apart(call)) for _ in range(5)), strict=True)

    assert min(calls) <= min(commands) + 0.3
