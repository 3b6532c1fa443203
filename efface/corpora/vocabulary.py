"""Which tokenizer the texts of a corpus are read with: one trained on them, or that of a pretrained model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
SMALLEST = 256 + 3


@dataclass(frozen=True)
class TrainedTokenizer:
    """A byte-level BPE of `vocab_size` entries, learned from every text of the corpus."""

    kind: Literal["train"] = "train"
    vocab_size: int = 2000

    def __post_init__(self) -> None:
        if self.vocab_size < SMALLEST:
            raise ValueError(f"vocab_size {self.vocab_size}: expected at least {SMALLEST}, all bytes and three marks")


@dataclass(frozen=True)
class PretrainedTokenizer:
    """The tokenizer of the model at `source`: a folder, a GGUF file or a name on the Hugging Face Hub."""

    kind: Literal["pretrained"]
    source: str


def train_byte_bpe(texts: Iterable[str], *, vocab_size: int) -> "PreTrainedTokenizerFast":
    """A byte-level BPE with BOS before every text; any text, in any script, survives encoding and decoding.

    The same texts in the same order give the same bytes when saved.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BOS, EOS, PAD], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bpe.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=BOS, eos_token=EOS, pad_token=PAD, clean_up_tokenization_spaces=False
    )
