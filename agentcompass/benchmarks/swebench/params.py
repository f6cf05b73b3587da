"""The parameters of the SWE-bench family."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, field_validator


class SweBenchParams(BaseModel):
    """Which rows are taken, and how predictions are tested."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data_path: Path | None = None
    """A local Parquet, JSON or JSON Lines file in the published schema; nothing is fetched then."""
    dataset: str = ""
    """Another data set of this shape on the hub, as ``owner/name``; empty for the benchmark's own."""
    revision: str = ""
    """Commit, tag or branch of the data set; empty for the pinned one (``main`` for another data set)."""
    hub_file: str = "data/test-00000-of-00001.parquet"
    """The file in the data set."""
    image: str = ""
    """Where the images are, if not where they are published, e.g. ``mirror.example/{instance_id}:latest``."""
    category_field: str = "repo"
    """The field by which tasks are grouped, e.g. ``difficulty``, ``language`` or ``version``."""
    test_timeout_seconds: PositiveFloat = 1800.0
    """How long the tests may run on a prediction; what takes longer is not resolved."""
    control_run: bool = True
    """Run the tests again with all of them spoiled, to tell results that the prediction only prints."""
    max_log_mb: PositiveInt = 100
    """How much the tests may print."""

    @field_validator("image")
    @classmethod
    def _names_an_instance(cls, image: str) -> str:
        if image and "{instance_id}" not in image:
            raise ValueError("must hold {instance_id}; an image for all tasks is environment_params.image")
        return image
