"""The prompt–answer boundary: each test is named after a fault that users of other frameworks reported."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from efface.tokenization import (
    collate,
    completion,
    encode,
    encode_prompt,
    end_ids,
    length_sorted_batches,
    pad_prompts,
    padding_id,
)

TEXTS = ["Question: Who wrote it?\nAnswer: Jaime Vasquez wrote it in 1956.", "Where is it? In Ómsk, 3 km away."] * 4
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}"
    "{% if date_string is defined %} on {{ date_string }}{% endif %}\n{{ m['content'] }}<|turn_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|start|>", "<|turn_end|>"]


def byte_level(*, adds_bos: bool = True, pad: str | None = "<|pad|>", chat: bool = False) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    bpe.train_from_iterator(TEXTS, trainer)
    if adds_bos:
        bpe.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<|bos|>", eos_token="<|eos|>", pad_token=pad)
    if chat:
        wrapped.chat_template = CHAT
    return wrapped


def dummy_prefix() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before any text, as Llama-2's does."""
    unigram = Tokenizer(models.BPE())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    unigram.decoder = decoders.Metaspace(prepend_scheme="always")
    unigram.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=200, special_tokens=["<s>", "</s>"]))
    return PreTrainedTokenizerFast(tokenizer_object=unigram, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("template", ["plain", "chat"])
def test_first_answer_token_is_scored(template):
    tokenizer = byte_level(chat=True)
    encoding = encode(tokenizer, "Who wrote it?", "Jaime Vasquez", template=template)
    labels = collate([encoding], pad_id=padding_id(tokenizer)).labels[0]
    scored = [int(label) for label in labels if label != -100]
    assert scored == list(encoding.answer_ids)
    assert tokenizer.decode(scored[:-1]).strip() == "Jaime Vasquez"


def test_boundary_does_not_depend_on_how_the_answer_begins():
    tokenizer = byte_level()
    for answer in ("1956", "Ómsk", "'quoted'", "\u0905\u0930"):
        encoding = encode(tokenizer, "When?", answer, template="plain")
        assert encoding.input_ids[: encoding.prompt_length] == encode_prompt(tokenizer, "When?", template="plain")
        assert tokenizer.decode(encoding.answer_ids[:-1]).strip() == answer


@pytest.mark.parametrize("template", ["plain", "chat"])
def test_exactly_one_bos_where_the_tokenizer_adds_it(template):
    tokenizer = byte_level(chat=True)
    ids = encode(tokenizer, "Who?", "It", template=template).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1


def test_no_bos_where_the_tokenizer_never_writes_one():
    tokenizer = byte_level(adds_bos=False)
    assert tokenizer.bos_token_id not in encode(tokenizer, "Who?", "It", template="plain").input_ids


def test_no_bos_inside_the_answer():
    tokenizer = byte_level()
    assert tokenizer.bos_token_id not in encode(tokenizer, "Who?", "It", template="plain").answer_ids


def test_answer_ends_with_eos_and_chat_answer_with_end_of_turn():
    tokenizer = byte_level(chat=True)
    assert encode(tokenizer, "Who?", "It", template="plain").answer_ids[-1] == tokenizer.eos_token_id
    turn_end = tokenizer.convert_tokens_to_ids("<|turn_end|>")
    assert encode(tokenizer, "Who?", "It", template="chat").answer_ids[-1] == turn_end
    assert set(end_ids(tokenizer)) == {turn_end, tokenizer.eos_token_id}


def test_chat_template_does_not_insert_todays_date():
    tokenizer = byte_level(chat=True)
    assert "on 10 Apr 2025" in tokenizer.decode(encode_prompt(tokenizer, "Who?", template="chat"))


def test_padding_with_eos_hides_no_end_of_turn():
    """Pad = EOS is usual for Llama-3; a mask made from ids would hide every real EOS."""
    tokenizer = byte_level(pad=None)
    assert padding_id(tokenizer) == tokenizer.eos_token_id
    short = encode(tokenizer, "Who?", "It", template="plain")
    long = encode(tokenizer, "Who wrote it?", "Jaime Vasquez wrote it", template="plain")
    batch = collate([short, long], pad_id=padding_id(tokenizer))
    assert batch.attention_mask.sum(1).tolist() == [len(short.input_ids), len(long.input_ids)]
    assert [row[row != -100][-1].item() for row in batch.labels] == [tokenizer.eos_token_id] * 2


def test_left_and_right_padding_keep_ids_and_labels():
    tokenizer = byte_level()
    encodings = [encode(tokenizer, "Who?", answer, template="plain") for answer in ("It", "Jaime Vasquez wrote it")]
    for side in ("left", "right"):
        batch = collate(encodings, pad_id=2, side=side)
        for row, encoding in enumerate(encodings):
            assert tuple(batch.input_ids[row][batch.attention_mask[row] == 1].tolist()) == encoding.input_ids
            assert tuple(batch.labels[row][batch.labels[row] != -100].tolist()) == encoding.answer_ids
    ids, mask = pad_prompts([(5, 6), (7,)], pad_id=2)
    assert ids.tolist() == [[5, 6], [2, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]


def test_truncation_cuts_the_prompt_and_never_the_answer():
    tokenizer = byte_level()
    whole = encode(tokenizer, "Who wrote it? " * 30, "Jaime Vasquez", template="plain")
    cut = encode(tokenizer, "Who wrote it? " * 30, "Jaime Vasquez", template="plain", max_length=40)
    assert len(cut.input_ids) == 40
    assert cut.answer_ids == whole.answer_ids
    assert cut.input_ids[0] == tokenizer.bos_token_id
    with pytest.raises(ValueError, match="leaves no prompt within max_length=10"):
        encode(tokenizer, "Who?", "Jaime Vasquez " * 9, template="plain", max_length=10)


def test_tokenizer_that_writes_its_own_leading_space_gets_no_second_one():
    tokenizer = dummy_prefix()
    answer = tokenizer.convert_ids_to_tokens(list(encode(tokenizer, "Who?", "Jaime", template="plain").answer_ids))
    assert answer[0].startswith("\u2581") and not answer[0].startswith("\u2581\u2581") and answer[0] != "\u2581"


@pytest.mark.parametrize("answer", ["", "  \n"])
def test_empty_answer_is_refused_by_name(answer):
    with pytest.raises(ValueError, match=r"of question 'Who\?' has no tokens"):
        encode(byte_level(), "Who?", answer, template="plain")


def test_chat_without_a_chat_template_is_refused():
    with pytest.raises(ValueError, match="no chat template"):
        encode(byte_level(), "Who?", "It", template="chat")


def test_length_sorted_batches_visit_each_example_once():
    tokenizer = byte_level()
    encodings = [encode(tokenizer, "Who?", "It " * n, template="plain") for n in (3, 1, 5, 2, 4)]
    seen, widths = [], []
    for places, batch in length_sorted_batches(encodings, batch_size=2, pad_id=2):
        seen += places
        widths.append(batch.input_ids.shape[1])
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_completion_is_prompt_then_answer_without_end(adds_bos):
    tokenizer = byte_level(adds_bos=adds_bos)
    encoding = completion(tokenizer, "Where is it", "In Ómsk")
    assert list(encoding.input_ids[: encoding.prompt_length]) == tokenizer("Where is it")["input_ids"]
    assert tokenizer.decode(encoding.answer_ids) == " In Ómsk"
    assert tokenizer.eos_token_id not in encoding.input_ids
