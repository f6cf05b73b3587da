"""The null harness: a control that solves nothing, so every sound task must score 0."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from ..protocols import PATCH_ARTIFACT, Outcome, Trial

_IDLE_PATCH = b"""\
diff --git a/agentcompass-idle.txt b/agentcompass-idle.txt
new file mode 100644
--- /dev/null
+++ b/agentcompass-idle.txt
@@ -0,0 +1 @@
+This change does nothing.
"""


class NullParams(BaseModel):
    """In which way the null harness solves nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    hands_in: Literal["nothing", "empty", "idle_patch"] = "nothing"
    """``nothing``; an ``empty`` answer and patch; or an ``idle_patch``, which only adds a text file."""


_OUTCOMES = {
    "nothing": Outcome(stop_reason="done"),
    "empty": Outcome(answer="", artifacts={PATCH_ARTIFACT: b""}, stop_reason="done"),
    "idle_patch": Outcome(artifacts={PATCH_ARTIFACT: _IDLE_PATCH}, stop_reason="done"),
}


class NullHarness:
    """Hands in no answer."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: NullParams) -> None:
        self._outcome = _OUTCOMES[params.hands_in]

    async def run(self, trial: Trial) -> Outcome:
        """Do nothing."""
        return self._outcome
