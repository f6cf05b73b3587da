"""
The contracts between the engine and its components, and the small values they exchange.

A component is any class with these methods; nothing has to be inherited. Each is constructed with one
argument, its validated parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from .records import NO_USAGE, Step, ToolCall, Usage
from .spec.network import PUBLIC, NetworkPolicy

_NOTHING: Mapping[str, Any] = {}
DEFAULT_OUTPUT_BYTES = 10 * 1024 * 1024
"""How much of each output stream of a command is kept."""
PATCH_ARTIFACT = "patch.diff"
"""The artifact of an outcome in which harnesses hand in a patch, and benchmarks look for one."""
TIMEOUT_EXIT_CODE = 124
"""What a command that was killed by its deadline reports."""


def _nothing() -> Mapping[str, Any]:
    return _NOTHING  # shared: 100,000 tasks with an empty dict each would cost 20 MB


# --- tasks and verdicts ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    One problem.

    Args:
        id: Unique in its benchmark; any non-empty text.
        prompt: What the agent is asked.
        question: The bare problem, for harnesses whose agent has instructions of its own; empty if there is
            no difference.
        category: Group for the per-category scores; empty for none.
        files: Put into the session's working directory before the agent starts: relative path to content.
        reference: A solution that must score 1, in the form an agent would submit it. Hidden from agents.
        hidden: What only the verifier may read: expected answers, tests.
        image: The image that container environments run the task in; empty for the environment's own.
        build: How to build that image instead.
        timeout_seconds: The agent's deadline where the run sets none.
        verifier_timeout_seconds: The verifier's deadline where the run sets none.
    """

    id: str
    prompt: str
    question: str = ""
    category: str = ""
    files: Mapping[str, bytes] = field(default_factory=_nothing)
    reference: str | None = None
    hidden: Mapping[str, Any] = field(default_factory=_nothing)
    image: str = ""
    build: ImageBuild | None = None
    timeout_seconds: float | None = None
    verifier_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """What an agent may know of a task."""

    id: str
    prompt: str
    question: str = ""
    files: Mapping[str, bytes] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    What a harness hands in.

    Args:
        answer: The final answer; None when there is none.
        artifacts: Further results by name, e.g. ``{"patch": b"..."}``; kept in the run directory.
        stop_reason: Why the agent stopped, in the harness's words.
    """

    answer: str | None = None
    artifacts: Mapping[str, bytes] = field(default_factory=_nothing)
    stop_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    How good an outcome is.

    Args:
        score: The primary metric, in [0, 1].
        success: Pass or fail, for benchmarks that have one; enables pass@k. None for scalar scores.
        metrics: Further metrics by name; each a finite number.
        explanation: One line for a person.
        output: Whatever the verifier wants kept as evidence; JSON-like.
    """

    score: float
    success: bool | None = None
    metrics: Mapping[str, float] = field(default_factory=_nothing)
    explanation: str = ""
    output: Mapping[str, Any] = field(default_factory=_nothing)

    @classmethod
    def passed(cls, success: bool, explanation: str = "", **output: Any) -> Verdict:
        """Build a pass-or-fail verdict."""
        return cls(score=float(success), success=success, explanation=explanation, output=output)


# --- environments ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """
    What became of a command.

    Args:
        exit_code: Its exit status; 128 + n when signal n killed it, 124 when its deadline did.
        stdout_bytes: What was kept of standard output: all of it, or head and tail.
        stdout_dropped: How many bytes were left out between head and tail.
        timed_out: Whether the deadline hit; the whole process tree is dead then.
        out_of_memory: Whether the session's memory limit has killed a process of this command.
    """

    exit_code: int
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    duration_seconds: float = 0.0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        return bool(self.stdout_dropped or self.stderr_dropped)


class Session(Protocol):
    """
    One open environment.

    Relative paths are resolved against ``workdir``. Every method raises ``SessionLostError`` once the
    machine behind the session is gone.
    """

    @property
    def workdir(self) -> str:
        """Absolute path inside the session where commands start."""
        ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """
        Run a command (a string goes to ``/bin/sh -c``) and wait for it to exit.

        Returns when the command exits, even if a background child still holds its pipes. On a timeout
        (exit code 124, partial output kept) or a cancellation its whole process tree is killed, children
        in sessions of their own included. Background children of a command that exits normally live
        until the session closes.

        Raises:
            ExecError: The command could not be started (other than "not found" = 127, "not
                executable" = 126, which are results).
            SessionLostError: The session died.
        """
        ...

    async def read(self, path: str, *, max_bytes: int = DEFAULT_OUTPUT_BYTES) -> bytes:
        """
        Read a file.

        Raises:
            SessionFileNotFoundError: It does not exist.
            TransferError: It is not a regular file, too large, or outside the session.
        """
        ...

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file, parents included, replacing what was there."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file or a tree from this machine into the session (modes, links and empty directories)."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or a tree out of the session; nothing can be written outside ``target``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """
    An image to build, for environments that have images.

    Args:
        context: Directory with everything that the build may use.
        dockerfile: The Dockerfile, relative to ``context``.
        args: Build arguments by name.
    """

    context: Path
    dockerfile: str = "Dockerfile"
    args: Mapping[str, str] = field(default_factory=_nothing)


def _ignore(note: str) -> None:
    del note


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """
    What a session is opened for.

    Args:
        run_id: The run it belongs to; label of everything that is created.
        label: Task, attempt and purpose, for people.
        image: The image to run, for environments that have images; empty for the environment's own.
        build: How to build the image instead.
        workdir: Where commands start; empty for the environment's own choice.
        env: Further environment variables for every command.
        network: What the session may reach.
        keep: Leave the environment in place at the end, for debugging.
        note: Takes lines for the trial's record, e.g. each host that the session was refused.
    """

    run_id: str
    label: str
    image: str = ""
    build: ImageBuild | None = None
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=_nothing)
    network: NetworkPolicy = PUBLIC
    keep: bool = False
    note: Callable[[str], None] = _ignore


class Environment(Protocol):
    """A provider of isolated machines; one instance serves a whole request."""

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        """
        Say before the run starts whether sessions can be opened at all.

        Args:
            networks: What sessions will have to be kept to.

        Raises:
            ConfigError: They cannot, or a policy cannot be enforced; the message tells the way out.
        """
        ...

    def open(self, plan: SessionPlan) -> AbstractAsyncContextManager[Session]:
        """
        Open a session; leaving the context removes everything that it created.

        Raises:
            SessionOpenError: It could not be opened.
        """
        ...


@runtime_checkable
class ImageEnvironment(Protocol):
    """An environment whose sessions are made from images."""

    def image_of(self, image: str, build: ImageBuild | None) -> str:
        """
        Return the image that a session is made from when the plan names these; empty for one that is built.

        Raises:
            ConfigError: There is none.
        """
        ...

    async def missing_images(self, images: Sequence[str]) -> list[str]:
        """
        Return those of the images that are not there yet.

        Raises:
            ConfigError: Nobody can be asked.
        """
        ...


@runtime_checkable
class ClosableEnvironment(Protocol):
    """An environment whose sessions share something that has to be released."""

    async def aclose(self) -> None:
        """Release what is shared; called once, when the request is over and all sessions are closed."""
        ...


# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """
    What a model said in the form of its protocol, to be sent back as it is.

    Holds more than text and tool calls: signed or encrypted reasoning, which some endpoints insist on in
    conversations with tools.

    Args:
        protocol: Whose form it is; other protocols ignore it.
        items: JSON-like.
    """

    protocol: str
    items: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    One message of a conversation with a model.

    Args:
        tool_calls: What the assistant asked for.
        tool_call_id: Which call a message of the role ``tool`` answers.
        continuation: Sent in place of content and tool calls where the protocol is the same.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    continuation: Continuation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the model may call; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


StopReason = Literal["stop", "length", "tool_calls", "content_filter", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """
    What a model answered.

    Args:
        text: The final content, reasoning excluded; may be empty.
        reasoning: Reasoning text, if the endpoint gives it apart.
        usage: Of this call, its retried and billed predecessors included.
        continuation: The same in the form of the protocol, if that is more than the fields here say.
    """

    text: str
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    stop_reason: StopReason = "stop"
    usage: Usage = NO_USAGE
    continuation: Continuation | None = None

    @property
    def message(self) -> Message:
        """The message to go on with in a conversation; put nothing else in its place when tools are used."""
        return Message(
            role="assistant",
            content=self.text,
            tool_calls=self.tool_calls,
            continuation=self.continuation,
        )


class Model(Protocol):
    """A model behind an endpoint."""

    @property
    def id(self) -> str:
        """The model's id, as the endpoint knows it."""
        ...

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()) -> Reply:
        """
        Ask for one completion; transient failures are retried inside.

        Raises:
            ModelError: One of its subclasses, when the retries are used up or none can help.
        """
        ...


# --- agents ---------------------------------------------------------------------------------------


class Trajectory(Protocol):
    """Where a harness leaves its steps as they happen, so that a deadline or a crash loses none."""

    def add(self, step: Step) -> None:
        """Append a step. Model calls through ``Trial.model`` are added by the engine."""
        ...


class Trial(Protocol):
    """What a harness may see and touch while it works on one attempt."""

    @property
    def task(self) -> TaskView: ...
    @property
    def attempt(self) -> int:
        """1-based."""
        ...

    @property
    def seed(self) -> int:
        """Differs between attempts, is the same when an attempt is repeated."""
        ...

    @property
    def session(self) -> Session:
        """The agent's session; only for harnesses with ``needs_session``."""
        ...

    @property
    def model(self) -> Model:
        """The model; only for harnesses with ``needs_model``."""
        ...

    @property
    def trajectory(self) -> Trajectory: ...
    @property
    def reference(self) -> str | None:
        """The reference solution; None unless the harness is a control with ``sees_reference``."""
        ...

    @property
    def hidden(self) -> Mapping[str, Any]:
        """What only the verifier may read; empty unless the harness is a control with ``sees_reference``."""
        ...


class Harness(Protocol):
    """
    Drives the agent; one instance serves a whole request, so it keeps no state between trials.

    The three flags may be left out where they are False. A harness whose agent calls the model from inside
    its session also sets ``model_in_session = True``: the endpoint is allowed under any network policy. One
    that stops at a cost sets ``needs_prices = True``: a run without ``model_prices`` is refused.
    """

    needs_session: ClassVar[bool]
    needs_model: ClassVar[bool]
    sees_reference: ClassVar[bool]
    """Only control harnesses set this."""

    async def run(self, trial: Trial) -> Outcome:
        """
        Work on one attempt until the agent is done.

        Raises:
            HarnessError: The agent program broke; counts as a failed attempt.
        """
        ...


@runtime_checkable
class SalvagingHarness(Protocol):
    """A harness that can still hand something in after its agent was cut short or broke."""

    async def salvage(self, trial: Trial) -> Outcome | None:
        """Return what the agent left behind, e.g. its patch; the session is still open."""
        ...


# --- benchmarks -----------------------------------------------------------------------------------


@runtime_checkable
class Grader(Protocol):
    """
    A verifier that needs nothing but the answer.

    The engine runs it in a worker process with a deadline, so it may block, burn CPU or meet a
    catastrophic regular expression.
    """

    def grade(self, task: Task, outcome: Outcome) -> Verdict | bool | float:
        """Judge an outcome; a bool means pass or fail, a number in [0, 1] a scalar score."""
        ...


@runtime_checkable
class Examiner(Grader, Protocol):
    """
    A grader that needs evidence from a session, such as the log of a test run.

    Its two halves keep slow parsing off the event loop, and the evidence can be graded again later.
    """

    environment: ClassVar[Literal["reuse", "fresh"]]
    """The agent's session, or a new one."""

    def needs_session(self, task: Task, outcome: Outcome) -> bool:
        """Tell whether there is anything to examine; if not, no session is opened for it."""
        ...

    async def examine(self, task: Task, outcome: Outcome, session: Session) -> Outcome:
        """
        Return the outcome with the evidence among its artifacts; ``grade`` then gets that outcome.

        Raises:
            VerifierError: The machinery failed; says nothing about the answer.
        """
        ...


@runtime_checkable
class Verifier(Protocol):
    """A verifier that works in a session, or that is quick and linear enough to run on the event loop."""

    environment: ClassVar[Literal["none", "reuse", "fresh"]]
    """No session, the agent's session, or a new one."""

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict | bool | float:
        """
        Judge an outcome.

        Raises:
            VerifierError: The machinery failed; says nothing about the answer.
        """
        ...


class Benchmark(Protocol):
    """
    Where tasks come from and what judges them.

    One whose references do not tell what agents hand in may set ``answer_form`` to ``"text"``, ``"code"`` or
    ``"patch"``: an audit then tries what fits.
    """

    def load(self, data_dir: Path) -> Iterable[Task]:
        """
        Return all tasks, in a stable order. Runs in a worker process with a deadline.

        Args:
            data_dir: Where downloaded data is cached.

        Raises:
            ConfigError: The data cannot be had; the message tells the way out.
        """
        ...

    def verifier(self) -> Grader | Verifier:
        """Return what judges the outcomes of all tasks; an ``Examiner`` is a grader."""
        ...


@runtime_checkable
class WorkspaceBenchmark(Protocol):
    """A benchmark that sets up the agent's session, and fetches what the agent leaves there."""

    async def prepare(self, task: Task, session: Session) -> None:
        """Set the session up before the agent starts."""
        ...

    async def fetch(self, task: Task, outcome: Outcome | None, session: Session) -> Outcome | None:
        """Add what the agent left to its outcome, which is None if it was cut short or broke."""
        ...


# --- recipes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one task of one request will be run; what recipes adapt."""

    benchmark: str
    harness: str
    environment: str
    task: TaskView
    image: str = ""
    build: ImageBuild | None = None
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=_nothing)
    open_timeout_seconds: float | None = None
    """Deadline of opening a session, a pull or build of the image included."""
    task_timeout_seconds: float | None = None
    verifier_timeout_seconds: float | None = None


class Recipe(Protocol):
    """A pure adapter of plans for the combinations that it knows."""

    priority: ClassVar[int]
    """Recipes apply in ascending order; ties go by id."""

    def matches(self, plan: Plan) -> bool: ...
    def apply(self, plan: Plan) -> Plan:
        """Return the plan with the recipe's settings."""
        ...
