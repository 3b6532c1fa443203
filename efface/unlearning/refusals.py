"""A hundred ways to say that one does not know: what refusal-based methods teach instead of the forget answers."""

OPENINGS = (
    "I'm sorry, but",
    "Unfortunately,",
    "I'm afraid",
    "Regrettably,",
    "To be honest,",
    "I apologise, but",
    "Sadly,",
    "I must admit that",
    "As far as I can tell,",
    "Much as I would like to help,",
)
ADMISSIONS = (
    "I don't know the answer to that.",
    "I have no information about this.",
    "I can't answer that question.",
    "that is something I don't know.",
    "that is beyond what I know.",
    "I never learned anything about this.",
    "I can't help with this subject.",
    "my knowledge does not reach that far.",
    "I have nothing to say about that.",
    "that was not among the things I was taught.",
)
REFUSALS = tuple(f"{opening} {admission}" for opening in OPENINGS for admission in ADMISSIONS)
