"""Every row of the corpus that is used, with what it is for."""

import pyarrow as pa

from stages.tables.table import Table

EXAMPLES = Table(
    name="examples",
    version=1,
    columns={
        "id": (pa.int64(), "row number in the whole corpus, the same whatever part of it is used; not contiguous then"),
        "content_hash": (pa.string(), "SHA-256 in hex of question, zero byte, answer"),
        "split": (pa.string(), "authors, holdout, real_authors or world_facts"),
        "author": (pa.int32(), "number of the author asked about, -1 for none"),
        "position": (pa.int32(), "0-based place among the author's questions, or in a split without authors"),
        "question": (pa.string(), "text"),
        "answer": (pa.string(), "text, known artefacts of the published corpus stripped"),
        "paraphrased_answer": (pa.string(), "the same facts in other words; null where none was published"),
        "perturbed_answers": (pa.list_(pa.string()), "false answers worded like the paraphrase; empty where none"),
        "trained": (pa.bool_(), "in the target's training run"),
        "pool": (pa.bool_(), "candidate for forgetting"),
        "anchor_candidate": (pa.bool_(), "pool row kept for anchors, in no reported forget set"),
        "utility": (pa.bool_(), "measures model utility; never in the pool"),
    },
)
