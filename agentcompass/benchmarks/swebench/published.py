"""The published sets, each pinned to one revision whose content is known."""

from __future__ import annotations

from ..hub import HubFile

_TEST_SPLIT = "data/test-00000-of-00001.parquet"

VERIFIED = HubFile(
    repo="SWE-bench/SWE-bench_Verified",
    revision="91aa3ed51b709be6457e12d00300a6a596d4c6a3",
    path=_TEST_SPLIT,
    sha256="43ed5a3d1d98da36472c1ade65ddd2085d7b4ff694fcaf6a023a07c5c1f32f21",
)
LITE = HubFile(
    repo="princeton-nlp/SWE-bench_Lite",
    revision="6ec7bb89b9342f664a54a6e0a6ea6501d3437cc2",
    path=_TEST_SPLIT,
    sha256="7a21f37b8bc179c7db5beeb14e88ac538ba283455c776e6b2535bbfb6e3551b4",
)
MULTILINGUAL = HubFile(
    repo="SWE-bench/SWE-bench_Multilingual",
    revision="e5c585e008e2cb5eecc7c64192d855c53279d788",
    path=_TEST_SPLIT,
    sha256="28b7f874e48496399077d276f9f2b163a077ddf0a70dc507c148d58da826baa9",
)
