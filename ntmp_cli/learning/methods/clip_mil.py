"""CLIP without training: the cosine of an instance and a class prompt (Eq. 82); nothing is fitted.

With a negative prompt the score is CLIP's log-odds between the two, logit_scale·(cos₊ − cos₋). With the positive
prompt alone a cosine has no natural threshold; the threshold is the quantile of U that the share π exceeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.method import FitData, FittedMethod, LinearFit, methods
from ntmp_cli.settings import MethodSettings
from ntmp_cli.tuple_source import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ClipSettings(MethodSettings):
    """Settings of methods that describe classes by prompts."""

    clip_prompts: tuple[str, ...] = Field(
        (),
        max_length=2,
        description="Prompts of clip-mil: the positive one, then optionally the negative one.",
    )


@methods.register("clip-mil")
class ClipMil(FittedMethod):
    """Cosine of frozen CLIP embeddings and class prompts; needs the extra `clip`."""

    encoder = "clip"
    settings = ClipSettings
    normalises = False

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        assert isinstance(config.settings, ClipSettings)
        self.prompts = config.settings.clip_prompts
        if not self.prompts:
            raise UsageError(
                "clip-mil needs a positive prompt",
                hint='Pass --clip-prompt "a photo of an even digit" --clip-prompt "a photo of an odd digit", or set '
                "`clip_prompts` in a file.",
            )

    @classmethod
    def bag_scores(cls, scorer: Any, raw: NDArray[np.generic], sizes: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The mean score of every bag."""
        from ntmp_cli.learning.bags import bag_means

        return bag_means(scorer.score(raw), sizes)

    def fit(self, data: FitData) -> LinearFit:
        import numpy as np

        from ntmp_cli.learning.clip import load_clip

        clip = load_clip(self.config.clip_model, self.config.clip_weights)
        prompts = clip.embed_text(self.prompts).double().cpu().numpy()
        facts = {"prompts": list(self.prompts), "logit_scale": clip.logit_scale}
        if len(prompts) == 2:
            return LinearFit(clip.logit_scale * (prompts[0] - prompts[1]), 0.0, facts)
        weight = clip.logit_scale * prompts[0]
        cosines = np.concatenate([x @ weight for x in data.unlabeled()])
        return LinearFit(weight, -float(np.quantile(cosines, 1 - self.prior)), facts)
