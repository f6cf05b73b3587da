"""How every session runs commands, whatever provides it. The commands are limited to what busybox has."""

from __future__ import annotations

import resource

import pytest
from anyio import CancelScope, create_task_group, fail_after, lowlevel

from agentcompass.errors import ExecError, SessionLostError
from agentcompass.protocols import Environment, Session

from .conftest import PLAN, Provider

pytestmark = pytest.mark.anyio

TREES = {
    "plain": "sleep {nap}",
    "child_and_command": "sleep {nap} & sleep {nap}",
    "own_session": "setsid sleep {nap} & sleep {nap}",
    "double_fork": "(setsid sh -c 'sleep {nap} & exec sleep {nap}' &); sleep {nap}",
    "respawning": "while :; do sleep {nap} & wait; done",
    "ignores_signals": "trap '' TERM INT HUP; sleep {nap}; sleep {nap}",
}


# --- commands ---------------------------------------------------------------------------------------


async def test_list_goes_to_the_program_as_it_is(session: Session) -> None:
    """No shell interprets the arguments of a list; empty ones, spaces and newlines survive."""
    result = await session.exec(["printf", "[%s]", "a b", "", "$HOME", "x\ny", "日本"])
    assert result.stdout == "[a b][][$HOME][x\ny][日本]"
    assert result.exit_code == 0


async def test_string_goes_to_a_shell(session: Session) -> None:
    """A string is interpreted by ``/bin/sh``."""
    assert (await session.exec("echo $((40 + 2)) | cat")).stdout == "42\n"


async def test_commands_start_in_the_working_directory(session: Session) -> None:
    """``workdir`` is absolute, and it is where commands start."""
    assert (await session.exec("pwd -P")).stdout == f"{session.workdir}\n"
    assert session.workdir.startswith("/")


@pytest.mark.parametrize("absolute", [True, False])
async def test_cwd_may_be_relative_or_absolute(session: Session, absolute: bool) -> None:
    """A relative ``cwd`` is resolved against the working directory."""
    await session.exec("mkdir -p sub/dir")
    expected = f"{session.workdir}/sub/dir"
    assert (await session.exec("pwd -P", cwd=expected if absolute else "sub/dir")).stdout == f"{expected}\n"


async def test_missing_cwd_is_an_error(session: Session) -> None:
    """The command cannot be started; its exit code must not look like the command's own."""
    with pytest.raises(ExecError, match="nowhere"):
        await session.exec("true", cwd="nowhere")


@pytest.mark.parametrize("command", [[], ["true", "nul\0"], "echo nul\0"])
async def test_impossible_command_is_an_error(session: Session, command: str | list[str]) -> None:
    """What no machine can run is refused, and the session lives on."""
    with pytest.raises(ExecError):
        await session.exec(command)
    assert (await session.exec("true")).exit_code == 0


async def test_lone_surrogate_in_a_command_does_no_harm(session: Session) -> None:
    """A model can answer with half a character; it reaches the command as a replacement."""
    assert (await session.exec("printf %s 'a\ud800b'")).stdout == "a?b"


async def test_environment_variables_come_from_plan_and_call(session: Session) -> None:
    """The call's variables go before the plan's; values are taken as they are."""
    script = 'printf "%s|%s|%s" "$FROM_PLAN" "$MINE" "$EMPTY"'
    result = await session.exec(script, env={"MINE": "a=b c\nd", "EMPTY": ""})
    assert result.stdout == "plan|a=b c\nd|"
    assert (await session.exec("echo $FROM_PLAN", env={"FROM_PLAN": "call"})).stdout == "call\n"


async def test_host_environment_stays_outside(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the host's environment is not visible to commands."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    assert "canary-4711" not in (await session.exec("env; cat /proc/self/environ")).stdout


async def test_stdin_arrives_whole(session: Session) -> None:
    """Standard input larger than any pipe arrives byte for byte, then ends."""
    data = bytes(range(256)) * 4096
    result = await session.exec("cat", stdin=data)
    assert result.stdout_bytes == data


async def test_stdin_is_empty_by_default(session: Session) -> None:
    """A command that reads standard input must not wait for ever."""
    with fail_after(5):
        assert (await session.exec("cat; echo end")).stdout == "end\n"


async def test_unread_stdin_does_not_block(session: Session) -> None:
    """A command may ignore its input."""
    with fail_after(5):
        assert (await session.exec("exit 3", stdin=b"x" * 1_000_000)).exit_code == 3


@pytest.mark.parametrize("code", [0, 1, 2, 125, 126, 127, 255])
async def test_exit_code_is_the_commands_own(session: Session, code: int) -> None:
    """No exit code is reserved or changed."""
    assert (await session.exec(["sh", "-c", f"exit {code}"])).exit_code == code


@pytest.mark.parametrize("signal", [9, 11, 15])
async def test_death_by_signal_is_128_plus_its_number(session: Session, signal: int) -> None:
    """As in every shell; it is not a timeout."""
    result = await session.exec(["sh", "-c", f"kill -{signal} $$"])
    assert (result.exit_code, result.timed_out) == (128 + signal, False)


async def test_pipeline_reports_its_last_command(session: Session) -> None:
    """The shell decides; nothing of ours comes between."""
    assert (await session.exec("false | true")).exit_code == 0
    assert (await session.exec("true | false")).exit_code == 1


async def test_program_not_found_is_127(session: Session) -> None:
    """Like in a shell, with a word about it on standard error."""
    result = await session.exec(["no-such-program", "x"])
    assert result.exit_code == 127
    assert "no-such-program" in result.stderr


async def test_file_without_execute_bit_is_126(session: Session) -> None:
    """Like in a shell."""
    await session.write("data.txt", b"#!/bin/sh\n")
    assert (await session.exec(["./data.txt"])).exit_code == 126


async def test_streams_stay_apart(session: Session) -> None:
    """Standard output and error are told apart; either may be empty."""
    result = await session.exec("echo problem >&2")
    assert (result.stdout, result.stderr) == ("", "problem\n")
    both = await session.exec("echo out; echo err >&2")
    assert (both.stdout, both.stderr) == ("out\n", "err\n")


async def test_output_that_is_no_text_survives(session: Session) -> None:
    """Bytes are kept as they are; as text they are decoded with replacement."""
    result = await session.exec(r"printf 'ok\377\376\000end'; printf '\377' >&2")
    assert result.stdout_bytes == b"ok\xff\xfe\x00end"
    assert result.stdout == "ok\ufffd\ufffd\x00end"
    assert result.stderr == "\ufffd"


async def test_commands_of_one_session_run_at_once(session: Session) -> None:
    """Two commands can wait for one another, and their outputs do not mix."""
    results: dict[str, str] = {}

    async def run(me: str, other: str) -> None:
        script = f"touch {me}; until [ -e {other} ]; do :; done; echo {me}"
        results[me] = (await session.exec(script)).stdout

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(run, "a", "b")
            tasks.start_soon(run, "b", "a")
    assert results == {"a": "a\n", "b": "b\n"}


# --- output limits ----------------------------------------------------------------------------------


async def test_output_within_its_limit_is_whole(session: Session) -> None:
    """Exactly as much as the limit is not truncated."""
    result = await session.exec("printf 1234567890", max_output_bytes=10)
    assert (result.stdout, result.truncated) == ("1234567890", False)


async def test_both_streams_keep_head_and_tail(session: Session) -> None:
    """What lies between is counted, for each stream by itself."""
    script = "seq 1 100000; seq 200000 300000 >&2"
    result = await session.exec(script, max_output_bytes=20)
    assert (result.stdout_bytes[:4], result.stdout_bytes[-4:]) == (b"1\n2\n", b"000\n")
    assert (result.stderr_bytes[:7], result.stderr_bytes[-7:]) == (b"200000\n", b"300000\n")
    assert (result.stdout_dropped, result.stderr_dropped) == (588895 - 20, 700007 - 20)
    assert result.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("flood", ["yes | head -c 100000000", "head -c 100000000 /dev/zero"])
async def test_flood_is_drained_without_being_kept(session: Session, flood: str) -> None:
    """A command that writes far too much, in lines or in one, ends normally and costs no memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await session.exec(f"{flood}; exit 7", max_output_bytes=1_000_000)
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (result.exit_code, len(result.stdout_bytes), result.stdout_dropped) == (7, 1_000_000, 99_000_000)
    assert grown_kilobytes < 20_000


# --- process trees ----------------------------------------------------------------------------------


async def test_background_child_does_not_hold_up_its_command(session: Session, nap: str) -> None:
    """A command is over when it exits, even if a child keeps its pipes open."""
    with fail_after(5):
        result = await session.exec(f"sleep {nap} & echo hi")
    assert (result.stdout, result.exit_code, result.timed_out) == ("hi\n", 0, False)


async def test_background_child_lives_on_between_commands(
    session: Session, provider: Provider, nap: str
) -> None:
    """A server started by one command can be used by the next."""
    await session.exec(f"sleep {nap} &")
    await provider.wait_running(f"sleep {nap}")
    await session.exec("true")
    assert await provider.running(nap)


@pytest.mark.parametrize("tree", TREES)
async def test_background_children_die_with_their_session(
    environment: Environment, provider: Provider, tree: str, nap: str
) -> None:
    """Closing a session leaves no process of any of its commands."""
    async with environment.open(PLAN) as session:
        await session.exec(f"({TREES[tree].format(nap=nap)}) & echo")
        await provider.wait_running(f"sleep {nap}")
    assert await provider.running(nap) == []


@pytest.mark.parametrize("tree", TREES)
async def test_timeout_kills_the_whole_tree(
    session: Session, provider: Provider, tree: str, nap: str
) -> None:
    """Exit code 124, the output so far, and no process left, whatever sessions they moved to."""
    script = f"echo partial; echo problem >&2; {TREES[tree].format(nap=nap)}"
    result = await session.exec(script, timeout_seconds=0.3)
    assert (result.exit_code, result.timed_out) == (124, True)
    assert (result.stdout, result.stderr) == ("partial\n", "problem\n")
    assert 0.3 <= result.duration_seconds < 5
    assert await provider.running(nap) == []


async def test_timeout_spares_other_commands(session: Session, provider: Provider, nap: str) -> None:
    """Only the tree of the command that took too long dies."""
    await session.exec(f"sleep {nap} &")
    result = await session.exec("sleep 60", timeout_seconds=0.05)
    assert result.timed_out
    assert await provider.running(nap)


async def test_timeout_during_a_wait_for_children(session: Session) -> None:
    """A shell that waits for its background child is cut off in time."""
    result = await session.exec("echo begun; (sleep 60)& wait", timeout_seconds=0.5)
    assert (result.stdout, result.exit_code, result.timed_out) == ("begun\n", 124, True)


async def test_exit_code_124_is_no_timeout(session: Session) -> None:
    """A command may use the code itself; only ``timed_out`` says that the deadline hit."""
    result = await session.exec("exit 124", timeout_seconds=60)
    assert (result.exit_code, result.timed_out) == (124, False)


@pytest.mark.parametrize("tree", TREES)
async def test_cancellation_kills_the_whole_tree(
    session: Session, provider: Provider, tree: str, nap: str
) -> None:
    """A cancelled call leaves no process, and the session can still be used."""
    async with create_task_group() as tasks:
        tasks.start_soon(session.exec, TREES[tree].format(nap=nap))
        await provider.wait_running(f"sleep {nap}")
        tasks.cancel_scope.cancel()
    assert await provider.running(nap) == []
    assert (await session.exec("echo alive")).stdout == "alive\n"


@pytest.mark.slow
async def test_cancellation_at_any_moment_leaves_nothing(
    session: Session, provider: Provider, nap: str
) -> None:
    """Cancelled at each step of the loop in turn, a call always ends at once and leaves no process."""
    with fail_after(15):
        for steps in range(40):
            async with create_task_group() as tasks:
                tasks.start_soon(session.exec, f"setsid sleep {nap} & sleep {nap}")
                for _ in range(steps):
                    await lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
    assert await provider.running(nap) == []
    assert (await session.exec("echo alive")).stdout == "alive\n"


async def test_session_of_a_cancelled_block_is_closed(
    environment: Environment, provider: Provider, nap: str
) -> None:
    """Closing is complete even though everything around it is cancelled."""
    with CancelScope() as scope:
        async with environment.open(PLAN) as session:
            await session.exec(f"setsid sleep {nap} &")
            scope.cancel()
            await lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert await provider.running(nap) == []


async def test_closed_session_is_lost(environment: Environment) -> None:
    """A session is not to be used after its block; it says so."""
    async with environment.open(PLAN) as session:
        pass
    with pytest.raises(SessionLostError):
        await session.exec("true")
    with pytest.raises(SessionLostError):
        await session.read("x")


async def test_sessions_do_not_see_each_others_files(environment: Environment) -> None:
    """Each session begins with an empty working directory."""
    async with environment.open(PLAN) as first, environment.open(PLAN) as second:
        await first.write("mine.txt", b"x")
        assert (await second.exec("ls -A")).stdout == ""
