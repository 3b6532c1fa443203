"""params.yaml as one checked object: one section per stage, unknown keys refused."""

import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from efface.circuits.extraction import CircuitExtraction
from efface.corpora.selection import CorpusSelection
from efface.difficulty.anchors import AnchorSelection
from efface.difficulty.cud import Cud
from efface.difficulty.mrd import Mrd
from efface.task_matrices.factors import TaskMatrices
from efface.tokenization import Template
from efface.training.lora import Lora
from stages.editors import Editor


def _checked_name(name: str) -> str:
    """A name becomes part of paths and of commands that a shell reads.

    Raises: ValueError where it could mean anything else there.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError("expected a letter or digit, then letters, digits, `_`, `.` or `-`; rename it")
    return name


def _checked_path(path: str) -> str:
    """A path of a stage's output.

    Raises: ValueError where it leaves data/ and models/.
    """
    if not re.fullmatch(r"(data|models)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+", path):
        raise ValueError("expected a path inside data/ or models/, of plain names")
    return path


Name = Annotated[str, AfterValidator(_checked_name)]
Output = Annotated[str, AfterValidator(_checked_path)]


class Section(BaseModel):
    """A group of parameters; a key that is not named here is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tokenization(Section):
    """How question and answer become tokens."""

    template: Template
    max_length: int


class Model(Section):
    """Where the model comes from: `scratch` with a shape, a folder, a GGUF file or a name on the Hugging Face Hub."""

    source: str
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    intermediate: int | None = None
    tie_embeddings: bool = True
    untrained: bool = False

    @model_validator(mode="after")
    def _scratch_has_a_shape(self) -> "Model":
        shape = (self.layers, self.hidden, self.heads, self.kv_heads, self.intermediate)
        if self.source == "scratch" and None in shape:
            raise ValueError("source: scratch needs layers, hidden, heads, kv_heads and intermediate")
        return self


class TrainTarget(Section):
    """How the target is trained, and every retained model in just the same way."""

    model: Model
    epochs: int
    batch_size: int
    learning_rate: float
    warmup_fraction: float = 0.1
    weight_decay: float = 0.0
    gradient_accumulation: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora: Lora | None = None


class ExtractActivations(Section):
    """Batch size of the forward passes that collect keys, Gram matrices and direct logit effects.

    `layers`: whose keys and Gram matrices are kept, for one-shot edits of them; null is all, too many where the model
    is large.
    """

    batch_size: int
    layers: tuple[int, ...] | None = None


class MeasureFaithfulness(Section):
    """How many pool rows' circuits are checked by ablation."""

    examples: int


class GridItem(Section):
    """One edited model: which edit on which forget set, and where its inputs and its weights are."""

    edit: Name
    set: Name
    base: Output
    weights: Output
    reads: Output


class ModelItem(Section):
    """One model to evaluate: whole weights where `weights` equals `base`, else a delta on `base`."""

    base: Output
    weights: Output
    edit: Name | None = None
    set: Name | None = None
    reads: Output | None = None


class Evaluate(Section):
    """How answers are scored and generated; `dtype` is that of the evaluated weights."""

    batch_size: int
    max_new_tokens: int
    dtype: Literal["float32", "bfloat16"] = "float32"
    generate: bool = True
    wrong_answers: bool = True
    rouge_words: Literal["ascii", "unicode"] = "ascii"
    truth_ratio_mean: Literal["geometric", "arithmetic"] = "geometric"


class QuantizeAttack(Section):
    """Which quantization schemes every model goes through, and whether its dear parts are measured under each.

    `wrong_answers` is what truth ratio and forget quality need, `generate` what ROUGE and model utility need.
    """

    schemes: tuple[str, ...]
    wrong_answers: bool = False
    generate: bool = False


class Relearning(Section):
    """One attack: fine-tuning on rows of the forget set, of authors that no model has seen, or of unrelated facts."""

    source: Literal["forget", "holdout", "world_facts"]
    examples: int
    steps: tuple[int, ...]
    learning_rate: float
    batch_size: int = 4


class SustainedItem(Section):
    """One forget set that comes in as a series of requests, and the edit that carries out each of them."""

    edit: Name
    set: Name
    base: Output
    reads: Output
    requests: int


class Requests(Section):
    """Deletion requests that stand, as ids of the examples table, and those taken back since the last edit."""

    forget: tuple[int, ...]
    withdrawn: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _each_example_once(self) -> "Requests":
        every = [*self.forget, *self.withdrawn]
        if len(set(every)) < len(every):
            twice = sorted({number for number in every if every.count(number) > 1})
            raise ValueError(f"examples {twice[:5]} are named twice; expected each once, to forget or withdrawn")
        if not self.forget:
            raise ValueError("no example is to be forgotten; expected at least one, the target itself serves for none")
        return self


class Compare(Section):
    """Resampling, and the gap below which a recovery rate is undefined."""

    bootstrap: int = 1000
    confidence: float = 0.95
    minimal_gap: float = 0.05


class Params(Section):
    """Everything `dvc repro` depends on besides code and data."""

    profile: Name
    seed: int
    sets: tuple[Name, ...]
    retained: tuple[Name, ...]
    task_matrices: tuple[Name, ...]
    tokenization: Tokenization
    prepare_data: CorpusSelection
    train_target: TrainTarget
    extract_activations: ExtractActivations
    build_task_matrices: TaskMatrices
    select_anchors: AnchorSelection
    extract_circuits: CircuitExtraction
    measure_faithfulness: MeasureFaithfulness
    score_predictors: Mrd
    score_cud: Cud
    edit: dict[Name, Editor]
    grid: dict[Name, GridItem]
    models: dict[Name, ModelItem]
    evaluate: Evaluate
    quantize_attack: QuantizeAttack
    requests: dict[Name, Requests]
    relearn_attack: dict[Name, Relearning]
    relearned: dict[Name, ModelItem]
    sustained: dict[Name, SustainedItem]
    compare: Compare

    @model_validator(mode="after")
    def _names_agree(self) -> "Params":
        for name, item in self.grid.items():
            if item.edit not in self.edit:
                raise ValueError(f"grid: {name} names edit {item.edit!r}; edit: has {sorted(self.edit)}")
            if item.set not in self.sets:
                raise ValueError(f"grid: {name} names set {item.set!r}; sets: has {list(self.sets)}")
            if name != f"{item.edit}-{item.set}":
                raise ValueError(f"grid: {name} should be named {item.edit}-{item.set}")
            if name not in self.models:
                raise ValueError(f"models: {name} of the grid is missing; list it so that it is evaluated")
        for key, chosen in {"retained": self.retained, "task_matrices": self.task_matrices}.items():
            if not set(chosen) <= set(self.sets):
                raise ValueError(f"{key}: {list(chosen)} must be among sets: {list(self.sets)}")
        for name in set(self.requests) - set(self.sets):
            raise ValueError(f"requests: {name} is no forget set; sets: has {list(self.sets)}")
        for key, attacked in self.relearned.items():
            if self.models.get(key) != attacked or attacked.set not in self.sets:
                raise ValueError(f"relearned: {key} must be the entry of that name in models:, with a set")
        for key, series in self.sustained.items():
            if series.edit not in self.edit or series.set not in self.sets:
                raise ValueError(
                    f"sustained: {key} names edit {series.edit!r} and set {series.set!r}; one is not there"
                )
        if "target" not in self.models:
            raise ValueError("models: `target` is missing; every comparison needs it")
        return self


def load_params(path: str | Path = "params.yaml") -> Params:
    """The parameters of this run.

    Raises: ValueError naming file, key and expectation where a parameter is unknown, missing or out of range.
    """
    try:
        return Params.model_validate(yaml.safe_load(Path(path).read_text()))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file; run from the root of the checkout") from error
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r:.80})" for e in error.errors()]
        raise ValueError(f"{path}: {len(lines)} parameter(s) not as expected\n" + "\n".join(lines)) from error
