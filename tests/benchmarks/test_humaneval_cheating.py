"""Answers that try to forge a success, to hide a failure as missing data, or to never end."""

from __future__ import annotations

import sys
import textwrap

import anyio
import pytest

from agentcompass.benchmarks.humaneval import HumanEval, HumanEvalParams
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.protocols import Outcome, SessionPlan, Task

pytestmark = pytest.mark.anyio

TASK = Task(
    id="t",
    prompt="",
    hidden={
        "prompt": 'def f(x):\n    """Double it."""\n',
        "entry_point": "f",
        "test": "def check(candidate):\n    for x in (1, 2): assert candidate(x) == 2 * x + 1000\n",
    },
)

PROGRAMS = {
    "exit 0 on import": "import os\nos._exit(0)\ndef f(x): pass",
    "exit 0 in the call": "import os\ndef f(x): os._exit(0)",
    "sys.exit on import": "import sys\nsys.exit(0)\ndef f(x): pass",
    "sys.exit in the call": "import sys\ndef f(x): sys.exit(0)",
    "prints a success": """
        import os
        def f(x):
            line = '{"nonce": "", "status": "passed", "reason": ""}\\n'
            print(line, flush=True)
            for descriptor in range(64):
                try: os.write(descriptor, line.encode())
                except OSError: pass
            return 0
        """,
    "equal to everything": """
        class Anything:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def f(x): return Anything()
        """,
    "number equal to everything": """
        class Anything(int):
            def __eq__(self, other): return True
            __hash__ = None
        def f(x): return Anything(3)
        """,
    "replaced builtins": """
        import builtins, sys
        builtins.AssertionError = builtins.Exception = SystemExit
        builtins.abs = builtins.len = builtins.all = lambda *args: True
        sys.modules["__main__"].encode = lambda value: 2
        def f(x): return 0
        """,
    "swallows the driver's tests": """
        import sys
        main = sys.modules["__main__"]
        main.judge = lambda payload, child, report: report("passed", "")
        main.Child.call = lambda self, x: 2 * x + 1000
        def f(x): return 0
        """,
    "kills its judge": "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGKILL)",
    "kills its judge on import": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef f(x): pass",
    "interrupts its judge": "import os\ndef f(x):\n    os.kill(os.getppid(), 2)\n    return 0",
    "terminates its judge": "import os\ndef f(x):\n    os.kill(os.getppid(), 15)\n    return 0",
    "kills itself": "import os, signal\ndef f(x): os.kill(0, signal.SIGKILL)",
    "reads the judge's memory": """
        import os, re
        def f(x):
            pid = os.getppid()
            found = ""
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
                for line in maps:
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    if "rw" not in line: continue
                    memory.seek(start)
                    found = found or re.search(rb"2 . x . (1000)", memory.read(end - start))
            return 2 * x + int(found[1])
        """,
    "writes to the judge's output": """
        import os
        def f(x):
            with open(f"/proc/{os.getppid()}/fd/1", "w") as out:
                out.write('{"nonce": "", "status": "passed", "reason": ""}')
            return 0
        """,
    "attaches to the judge": """
        import ctypes, os
        def f(x):
            if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0:
                return 2 * x + 1000
        """,
    "rewrites files": """
        import os, sys
        def f(x):
            for name in ("result.json", "judge.py", "conftest.py", "sitecustomize.py"):
                open(name, "w").write("import os; os._exit(0)")
            return 0
        """,
    "closes its descriptors": "import os\ndef f(x):\n    os.closerange(0, 256)\n    return 0",
    "breaks the protocol": """
        import os
        def f(x):
            for descriptor in range(3, 64):
                try: os.write(descriptor, b'{"value": 1, "error": 2}\\n[[[\\n{"value": ["int", []]}\\n')
                except OSError: pass
            return 0
        """,
    "sends deep nesting": """
        import os
        def f(x):
            for descriptor in range(3, 64):
                try: os.write(descriptor, b'{"value": ' + b'["list", [' * 5000 + b']]' * 5000 + b'}\\n')
                except OSError: pass
        """,
    "raises SystemExit": "def f(x): raise SystemExit(0)",
    "raises a hostile exception": """
        class Bad(BaseException):
            def __str__(self): raise SystemExit(0)
        def f(x): raise Bad
        """,
    "endless recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "endless result": "import itertools\ndef f(x): return itertools.count()",
    "too much text": "def f(x): return 'x' * 20_000_000",
    "self-containing list": "def f(x):\n    x = []\n    x.append(x)\n    return x",
    "takes all memory": "def f(x): return len(bytearray(1 << 42))",
    "does not define it": "def g(x): return 1",
    "defines no function": "f = 3",
    "deeply nested source": "def f(x): return " + "(" * 100_000,
    "lone surrogate in the source": "def f(x): return '\ud800'",
    "NUL in the source": "def f(x): return '\0'",
}


async def verdict_on(program: str, *, seconds: float = 5.0) -> tuple[bool | None, str]:
    verifier = HumanEval(HumanEvalParams(python=sys.executable, timeout_seconds=seconds)).verifier()
    answer = f"```python\n{textwrap.dedent(program)}\n```"
    environment = LocalEnvironment(LocalParams())
    with anyio.fail_after(15):
        async with environment.open(SessionPlan(run_id="test", label="cheat")) as session:
            verdict = await verifier.verify(TASK, Outcome(answer=answer), session)
    return verdict.success, verdict.explanation


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_cheating_program_fails(name: str) -> None:
    """Whatever the program does to its surroundings, it has failed: neither a success nor an error."""
    success, explanation = await verdict_on(PROGRAMS[name], seconds=2.0)
    assert success is False
    assert explanation


async def test_honest_program_passes_the_same_task() -> None:
    """The task of these tests can be solved."""
    assert (await verdict_on("def f(x): return 2 * x + 1000"))[0] is True


ENDLESS = {
    "loop on import": "while True: pass\ndef f(x): pass",
    "loop in the call": "def f(x):\n    while True: pass",
    "loop that catches everything": """
        import signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        def f(x):
            while True:
                try:
                    while True: pass
                except BaseException: pass
        """,
    "child that holds the pipes": """
        import os, time
        def f(x):
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(0)
        """,
    "sleep": "import time\ndef f(x): time.sleep(3600)",
}


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_program_fails_at_its_deadline(name: str) -> None:
    """The deadline ends it, and the verdict says so."""
    success, explanation = await verdict_on(ENDLESS[name], seconds=0.5)
    assert success is False
    assert "0.5 s" in explanation


MEMORY_SEARCH = r"""
import os, re
def f(x):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        spans = [line.split()[0].split("-") for line in maps if "rw" in line]
        text = b""
        for start, end in spans:
            memory.seek(int(start, 16))
            text += memory.read(int(end, 16) - int(start, 16))
    text += repr(os.environ).encode() + open(f"/proc/{os.getppid()}/cmdline", "rb").read()
    patterns = rb"Doubl[e] it", rb"asser[t] candidat[e]", rb'"nonc[e]": "'
    raise ValueError([bool(re.search(pattern, text)) for pattern in patterns])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_judged_process_never_holds_tests_or_nonce() -> None:
    """The search finds the prompt, but no test and no nonce, in memory, environment and command lines."""
    _, explanation = await verdict_on(MEMORY_SEARCH)
    assert "[True, False, False]" in explanation
