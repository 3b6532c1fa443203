"""The corrupted partner of an example: another author's question of equal length, before the example's own answer."""

from collections.abc import Sequence

from efface.tokenization import Encoding

NO_AUTHOR = -1


def corrupted_partners(encodings: Sequence[Encoding], authors: Sequence[int]) -> list[int | None]:
    """For each example the place of its partner, None where no other question fits.

    A partner has as many prompt tokens, another author (−1 is nobody's, so equal to none) and another question. Of
    several the next one in the order given, after the last comes the first, so that partners spread, nothing is drawn.

    Raises: ValueError where the two sequences differ in length.
    """
    if len(encodings) != len(authors):
        raise ValueError(f"{len(encodings)} encodings beside {len(authors)} authors: expected one author per example")
    by_length: dict[int, list[int]] = {}
    for place, encoding in enumerate(encodings):
        by_length.setdefault(encoding.prompt_length, []).append(place)

    def fits(place: int, other: int) -> bool:
        stranger = authors[place] == NO_AUTHOR or authors[place] != authors[other]
        return stranger and _prompt(encodings[place]) != _prompt(encodings[other])

    partners: list[int | None] = []
    for place, encoding in enumerate(encodings):
        peers = by_length[encoding.prompt_length]
        start = peers.index(place)
        in_turn = [*peers[start + 1 :], *peers[:start]]
        partners.append(next((other for other in in_turn if fits(place, other)), None))
    return partners


def corrupted_encoding(encoding: Encoding, partner: Encoding) -> Encoding:
    """The partner's prompt before the example's own answer.

    Raises: ValueError where the prompts differ in length.
    """
    if encoding.prompt_length != partner.prompt_length:
        raise ValueError(
            f"a prompt of {encoding.prompt_length} tokens beside a partner's of {partner.prompt_length}: "
            "patching needs equal lengths; choose another partner or a fallback"
        )
    return Encoding((*_prompt(partner), *encoding.answer_ids), encoding.prompt_length)


def _prompt(encoding: Encoding) -> tuple[int, ...]:
    return encoding.input_ids[: encoding.prompt_length]
