"""Settings of a training."""

from __future__ import annotations

import math
from copy import copy
from typing import Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES
from ntmp_cli.settings import MethodSettings, Settings

ESTIMATE: Literal["estimate"] = "estimate"
# Panels of `--help`, in this order; an option without panel is shown before them.
PANELS = METHOD_PANEL, NETWORK_PANEL, OPTIMISATION_PANEL, RUN_PANEL = "Method", "Network", "Optimisation", "Run"
METHOD: dict[str, Any] = {"panel": METHOD_PANEL}
NETWORK: dict[str, Any] = {"panel": NETWORK_PANEL}
OPTIMISATION: dict[str, Any] = {"panel": OPTIMISATION_PANEL}
RUN: dict[str, Any] = {"panel": RUN_PANEL}
# More would run for years: a number like that is a slip.
MOST_EPOCHS = 1_000_000


class TrainConfig(Settings):
    """Train an instance scorer on tuples and unlabeled data.

    The settings of the chosen method are declared beside the method. They are given and stored flat, side by side with
    those below: `TrainConfig(prior=0.5, method="ure", clamp="abs").settings.clamp`.
    """

    method: str = Field(
        "count",
        description="Training method, see `ntmp list methods`. A setting of the risk, such as --clamp, selects ure.",
    )
    settings: SerializeAsAny[MethodSettings] = Field(
        default_factory=MethodSettings, description="Settings of the method, declared beside it."
    )
    ignored: tuple[str, ...] = Field((), exclude=True, description="Settings that were given for another method.")
    prior: float | Literal["estimate"] | None = Field(
        None,
        description="Class prior π of the unlabeled pool; it overrides --prior-from. Default: the known prior of "
        "simulated tuples, otherwise an estimate by `count`. 'estimate' always estimates it.",
    )
    epochs: int | None = Field(
        None,
        ge=1,
        le=MOST_EPOCHS,
        description="Passes of a network over tuples and unlabeled data. Default: 30; for `count` on tables, 5 to"
        " 30 epochs that give 300 steps.",
    )
    seed: int = Field(0, ge=0, description="Seed of initialisation and batch order.")
    model: str = Field(
        "auto",
        description="Model, see `ntmp list models`. auto: a linear model and trees on tables, the network mlp "
        "elsewhere. sklearn:PACKAGE.CLASS, such as sklearn:linear_model.LogisticRegression, is any "
        "classifier of scikit-learn.",
    )
    estimator: dict[str, Any] = Field(
        {}, description="Parameters of the scikit-learn classifier: --set estimator.C=0.1."
    )
    count_law: str | None = Field(
        None,
        description="Law of noise of the recorded counts, in place of the one that is stored with the tuples: "
        "NAME:PARAMETERS of `ntmp list count-laws`, e.g. gaussian:2. gaussian:auto estimates it, on "
        "tables and on features of an encoder.",
        json_schema_extra={"panel": METHOD_PANEL},
    )
    encoder: str | None = Field(
        None,
        description="Frozen encoder. Its features are computed once and stored: pixels, random, pca, patches, "
        "torchvision:NAME, clip, or run:DIR (the last hidden layer of a trained network).",
        json_schema_extra=NETWORK,
    )
    encoder_weights: str | None = Field(
        None,
        description="Weights of the encoder. torchvision: a file, or 'default' for the published ones. patches "
        "and pca: the encoder.safetensors of an earlier run, in place of a new fit.",
        json_schema_extra=NETWORK,
    )
    clip_model: str = Field(
        "ViT-B-32",
        description="CLIP of the encoder: an open_clip name, or a model's JSON file.",
        json_schema_extra=NETWORK,
    )
    clip_weights: str | None = Field(
        None, description="Weights of that CLIP: a file, or a tag of open_clip.", json_schema_extra=NETWORK
    )
    normalize: Literal["auto", "none", "channel"] = Field(
        "auto",
        description="Input normalisation; auto: per channel for colour images, per feature for vectors.",
        json_schema_extra=NETWORK,
    )
    augment: Literal["none", "flip", "crop", "flip+crop"] | None = Field(
        None,
        description="Random changes of images in training: mirrored (flip), shifted by up to an eighth of their side "
        "(crop), or both. Default: flip+crop on cifar10, crop on svhn, else none.",
        json_schema_extra=NETWORK,
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Arithmetic of the network; bfloat16 is for accelerators, on most CPUs it is slower.",
        json_schema_extra=NETWORK,
    )
    batch_size: int | None = Field(
        None,
        ge=2,
        description="Instances per step, of tuples and of U. "
        "Default: 1024, 256 for the count likelihood. Less on small data, so that there are enough steps.",
        json_schema_extra=OPTIMISATION,
    )
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser.", json_schema_extra=OPTIMISATION)
    lr: float = Field(1e-3, gt=0, description="Learning rate at the start.", json_schema_extra=OPTIMISATION)
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="Learning-rate schedule.", json_schema_extra=OPTIMISATION
    )
    weight_decay: float = Field(1e-3, ge=0, description="Weight decay.", json_schema_extra=OPTIMISATION)
    grad_clip: float | None = Field(
        None, gt=0, description="Largest gradient norm of a step. Default: no limit.", json_schema_extra=OPTIMISATION
    )
    ema: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="Decay per step of the averaged weights, which are the ones that are scored and saved. 0 "
        "turns averaging off.",
        json_schema_extra=OPTIMISATION,
    )
    select: Literal["one-se", "best", "last"] = Field(
        "one-se",
        description="Epoch to keep. one-se: the latest whose held-out count likelihood is within one standard "
        "error of the best. best: the best. last: the last. Other label-free risks have no one-se and"
        " keep the best.",
        json_schema_extra=OPTIMISATION,
    )
    trace_every: int = Field(
        1,
        ge=0,
        description="Epochs between two scorings of the test instances; 0: only at the end.",
        json_schema_extra=RUN,
    )
    memory_mb: int = Field(
        4096,
        ge=1,
        description="Memory for training instances; larger data are read window by window.",
        json_schema_extra=RUN,
    )
    ranks: int | None = Field(
        None,
        ge=1,
        description="Number of data-parallel ranks to reproduce. Default: one per process of torchrun.",
        json_schema_extra=RUN,
    )

    @classmethod
    def described(cls) -> dict[str, FieldInfo]:
        """The settings of every training, then those of all methods."""
        shared = {name: field for name, field in cls.model_fields.items() if name not in ("settings", "ignored")}
        users: dict[str, list[str]] = {}
        fields: dict[str, FieldInfo] = {}
        for method, kind in REGISTRIES["methods"].items():
            for name, field in kind.settings.model_fields.items():
                users.setdefault(name, []).append(method)
                fields.setdefault(name, field)
        for name, field in fields.items():
            fields[name] = copy(field)
            fields[name].description = f"{field.description} ({', '.join(users[name])})"
            fields[name].json_schema_extra = METHOD
        return shared | fields

    @model_validator(mode="before")
    @classmethod
    def _compose(cls, values: Any) -> Any:
        """Collect the settings of the chosen method; names of other methods' settings go to `ignored`."""
        if not isinstance(values, dict) or "settings" in values:
            return values
        methods = dict(REGISTRIES["methods"].items())
        implied = (name for name, kind in methods.items() if kind.implied_by & values.keys())
        name = values.get("method") or next(implied, cls.model_fields["method"].default)
        known = REGISTRIES["methods"].get(str(name)).settings.model_fields
        foreign = {setting for kind in methods.values() for setting in kind.settings.model_fields} - set(known)
        # None stands for an option that was left out.
        ignored = tuple(sorted(key for key in foreign & values.keys() if values[key] is not None))
        shared = {key: value for key, value in values.items() if key not in known and key not in foreign}
        chosen = {key: value for key, value in values.items() if key in known}
        return {**shared, "method": name, "settings": chosen, **({"ignored": ignored} if ignored else {})}

    @field_validator("prior", mode="plain")
    @classmethod
    def _share_or_estimate(cls, value: Any) -> float | str | None:
        if value is None or value == ESTIMATE:
            return None if value is None else ESTIMATE
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number < 1:
            raise ValueError(f"expected a share between 0 and 1, or '{ESTIMATE}'")
        return number

    @field_validator("settings", mode="wrap")
    @classmethod
    def _of_the_method(cls, value: Any, handler: Any, info: ValidationInfo) -> MethodSettings:
        if isinstance(value, MethodSettings):
            return value
        kind: type[MethodSettings] = REGISTRIES["methods"].get(info.data["method"]).settings
        return kind.model_validate(value)

    @model_validator(mode="after")
    def _one_law(self) -> TrainConfig:
        noise: float = getattr(self.settings, "count_noise", 0.0)
        if self.count_law is not None and noise:
            raise ValueError("count_law and count_noise are two laws of noise: give one of them")
        return self

    @model_serializer(mode="wrap")
    def _flat(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        method_settings = values.pop("settings", {})
        return {**values, **method_settings}

    @property
    def known_epochs(self) -> int:
        """The length of a training, where it has been resolved."""
        assert self.epochs is not None, "the length is resolved before a network is trained"
        return self.epochs

    @property
    def prior_or_none(self) -> float | None:
        """The prior, where it has been given or resolved."""
        return None if self.prior == ESTIMATE else self.prior

    def known_prior(self, where: str = "configuration") -> float:
        """The prior, where it has been resolved."""
        if self.prior == ESTIMATE:
            raise UsageError(
                f"{where}: prior: only the method 'count' estimates it while training, in `ntmp train` and `ntmp run`",
                hint="For other methods `ntmp estimate-prior` does: pass its directory by --prior-from, or give a "
                "study the group `estimate_prior: {}` and its runs no prior.",
            )
        if self.prior is None:
            raise UsageError(
                f"{where}: prior: required, but not given (--prior X, or --prior-from DIR, written by "
                "`ntmp estimate-prior`)"
            )
        return self.prior
