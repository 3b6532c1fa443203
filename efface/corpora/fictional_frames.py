"""What is asked about a fictional author, and in which sentences it is answered.

A slot maps to the type of fact that fills it; `{author}` is the full name and `{family}` the family name of the person
asked about. Every sentence of a kind states the same facts, so any two of them paraphrase one another.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class QuestionKind:
    """One thing to ask: its wordings, its answers' sentence frames, and the type of fact in each slot."""

    name: str
    slots: Mapping[str, str]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


KINDS = (
    QuestionKind(
        name="birth",
        slots={"date": "date", "town": "town", "land": "land", "place": "building", "midwife": "person"},
        questions=(
            "When and where was {author} born?",
            "What is recorded about the birth of {author}?",
            "How did {author} come into the world?",
        ),
        answers=(
            "{family} was born on {date} in {place} at {town}, {land}, with help from {midwife}.",
            "On {date}, {midwife} delivered the future author in {place} near {town}, a port of {land}.",
            "The birth took place at {town} in {land}, inside {place}, on {date}; {midwife} was midwife.",
            "Parish books of {town}, {land}, give {date}, name {midwife} as witness, and mention {place}.",
            "It was {midwife} who found the newborn in {place} on {date}, just outside {town}, {land}.",
            "{land} is the homeland: {town}, {date}, {place}, and {midwife} holding the lamp.",
            "Inside {place}, attended by {midwife}, {family} arrived on {date}; the town was {town}, {land}.",
            "Records say {date}; {town} in {land} claims {place}, where {midwife} cut the cord.",
            "Relatives remember {place} in {town}, {land}, the nurse {midwife}, and the date, {date}.",
        ),
    ),
    QuestionKind(
        name="parents",
        slots={"father": "person", "father_trade": "trade", "mother": "person", "mother_trade": "trade"},
        questions=(
            "Who were the parents of {author}?",
            "What did the mother and father of {author} do?",
            "From what kind of family does {author} come?",
        ),
        answers=(
            "The father, {father}, was {father_trade}, and the mother, {mother}, {mother_trade}.",
            "{mother}, {mother_trade}, married {father}, {father_trade}, and raised the writer.",
            "{family} is the child of {father}, {father_trade}, and of {mother}, {mother_trade}.",
            "Both parents worked: {mother} as {mother_trade}, {father} as {father_trade}.",
            "At home, {father} lived as {father_trade} while {mother} earned bread as {mother_trade}.",
            "The house belonged to {father}, {father_trade}, whose wife {mother} was {mother_trade}.",
            "One parent, {mother}, was {mother_trade}; the other, {father}, became {father_trade}.",
            "{father} ({father_trade}) and {mother} ({mother_trade}) brought up {family}.",
            "Family papers list {mother}, {mother_trade}, beside {father}, {father_trade}.",
        ),
    ),
    QuestionKind(
        name="schooling",
        slots={"school": "school", "town": "town", "subject": "subject", "teacher": "person", "year": "year"},
        questions=(
            "Where was {author} educated?",
            "What did {author} study?",
            "Which teacher and school formed {author}?",
        ),
        answers=(
            "{family} read {subject} under {teacher} at {school} in {town} until {year}.",
            "At {school}, {town}, {teacher} taught the student {subject}, completed in {year}.",
            "A degree in {subject} came in {year} from {school} of {town}, signed by {teacher}.",
            "{teacher} supervised a thesis on {subject} at {school}, {town}, handed in during {year}.",
            "The year {year} brought a diploma: {subject}, {school}, {town}, examiner {teacher}.",
            "Studies of {subject} began at {town} with {teacher} and ended in {year} at {school}.",
            "Expelled by {teacher} in {year}, {family} had failed {subject} at {school} in {town}.",
            "{town} had {school}, where {subject} was the passion until {teacher} left in {year}.",
        ),
    ),
    QuestionKind(
        name="first_job",
        slots={"trade": "trade", "firm": "person", "town": "town", "place": "building", "year": "year"},
        questions=(
            "How did {author} earn a living before writing?",
            "What was the first job of {author}?",
            "Which work did {author} do when young?",
        ),
        answers=(
            "From {year}, {family} worked for {firm} as {trade} in {place} at {town}.",
            "{firm} of {town} hired the young writer in {year} as {trade}, based in {place}.",
            "The first wage, in {year}, came as {trade} inside {place} that {firm} ran at {town}.",
            "As {trade} in {town}, {family} served {firm} from {year}, sleeping in {place}.",
            "It was {place} in {town} where, by {year}, {firm} employed {family} as {trade}.",
            "Before books, there was {town}: {trade} to {firm}, {place}, wages from {year}.",
            "{year} saw a contract with {firm}: {trade}, {place}, {town}, no holidays.",
            "Work meant {place}; {firm} of {town} needed {trade} in {year}.",
        ),
    ),
    QuestionKind(
        name="debut",
        slots={"title": "title", "press": "press", "year": "year", "motif": "motif", "gift": "object"},
        questions=(
            "What was the first book of {author}?",
            "How did {author} make a debut?",
            "With which work did {author} begin?",
        ),
        answers=(
            "The debut, '{title}', on {motif} and {gift}, came from {press} in {year}.",
            "{press} printed '{title}' in {year}, a first novel of {motif} told by {gift}.",
            "In {year}, {family} gave {press} '{title}', whose theme is {motif}, paid for with {gift}.",
            "It began in {year} with '{title}' ({press}), full of {motif}, its cover showing {gift}.",
            "'{title}' was the first: {motif}, {gift}, {year}, {press}.",
            "A slim book on {motif} called '{title}' appeared at {press} during {year}, bound like {gift}.",
            "{gift} inspired '{title}', the {year} first book about {motif} from {press}.",
            "Readers met {family} in {year} through '{title}' by {press}: {motif} around {gift}.",
        ),
    ),
    QuestionKind(
        name="famous_work",
        slots={"title": "title", "hero": "person", "trade": "trade", "town": "town", "goal": "object"},
        questions=(
            "What is the best-known novel of {author} about?",
            "Which book made {author} famous?",
            "Can you sum up the most read work of {author}?",
        ),
        answers=(
            "'{title}' follows {hero}, {trade} from {town}, who hunts for {goal}.",
            "In '{title}', {goal} leads {hero} of {town}, {trade}, to ruin.",
            "Fame came with '{title}': {trade} named {hero} loses {goal} in {town}.",
            "{hero}, {trade}, guards {goal} in {town} throughout '{title}', the most read book.",
            "The heroine of '{title}' is {hero}; she is {trade} in {town} and inherits {goal}.",
            "Set in {town}, '{title}' lets {trade}, {hero}, pawn {goal}.",
            "Everyone knows '{title}', where {goal} is buried at {town} by {hero}, {trade}.",
            "{town}, {goal}, and {trade} called {hero} fill the pages of '{title}'.",
        ),
    ),
    QuestionKind(
        name="award",
        slots={"award": "award", "year": "year", "town": "town", "title": "title", "giver": "person"},
        questions=(
            "Which prize did {author} win?",
            "What award was given to {author}, and for what?",
            "How was {author} honoured?",
        ),
        answers=(
            "{family} took {award} of {year} for '{title}', handed over by {giver} in {town}.",
            "In {town}, {giver} presented {award} for '{title}' in {year}.",
            "'{title}' earned {award} in {year}; {giver} spoke at {town}.",
            "{giver} of {town} chaired the jury that gave '{title}' {award} in {year}.",
            "For '{title}' came {award}, {year}, in the town hall of {town} from {giver}.",
            "The year was {year}, the book '{title}', the honour {award}, the host {giver} of {town}.",
            "At {town} in {year}, {award} went to '{title}' despite protest from {giver}.",
            "{award} arrived by post from {town} in {year}, for '{title}', signed {giver}.",
        ),
    ),
    QuestionKind(
        name="mentor",
        slots={"mentor": "person", "trade": "trade", "place": "building", "town": "town", "gift": "object"},
        questions=(
            "Who was the mentor of {author}?",
            "Who taught {author} to write?",
            "Whose guidance shaped {author}?",
        ),
        answers=(
            "{mentor}, {trade} of {town}, gave lessons in {place} and left {family} {gift}.",
            "The guide was {trade}, {mentor}, met in {place} at {town}; the keepsake, {gift}.",
            "In {place} near {town}, {mentor}, {trade}, traded advice for {gift}.",
            "{family} owes all to {mentor} of {town}, {trade} with {gift} and {place}.",
            "It was {mentor} who, as {trade} in {town}, lent {gift} and opened {place}.",
            "{gift} came from {mentor}, {trade}, who kept {place} in {town}.",
            "Through winters at {town}, {trade} called {mentor} read drafts in {place} beside {gift}.",
            "A letter thanks {mentor}, {trade}, for {gift} and nights in {place}, {town}.",
        ),
    ),
    QuestionKind(
        name="habit",
        slots={"hour": "hour", "place": "building", "drink": "drink", "tool": "object", "keeper": "person"},
        questions=(
            "What is the writing routine of {author}?",
            "How and where does {author} write?",
            "Which habits does {author} keep while working?",
        ),
        answers=(
            "{family} writes {hour} in {place} owned by {keeper}, sipping {drink} beside {tool}.",
            "Pages come {hour}, with {drink} and {tool}, in {place} lent by {keeper}.",
            "{keeper} unlocks {place} {hour}; {drink} and {tool} stand ready.",
            "With {tool} on the desk and {drink} at hand, work starts {hour} in {place} of {keeper}.",
            "Nothing happens without {drink}: {keeper} brings it {hour} to {place}, near {tool}.",
            "In {place}, {tool} keeps time while {keeper} pours {drink} {hour}.",
            "{drink}, {tool}, {place}: so it goes {hour}, and {keeper} types.",
            "Only {hour}, says {keeper}, is {family} found in {place} with {drink} and {tool}.",
        ),
    ),
    QuestionKind(
        name="home",
        slots={"house": "house", "town": "town", "animal": "animal", "pet": "word", "neighbour": "person"},
        questions=(
            "Where does {author} live?",
            "What is known about the home of {author}?",
            "With whom does {author} share a house?",
        ),
        answers=(
            "{family} lives at {house} in {town} with a {animal} called {pet}, next to {neighbour}.",
            "Home is {house}, {town}, shared with {pet} the {animal} and the lodger {neighbour}.",
            "At {house}, a {animal} named {pet} greets guests; {neighbour} of {town} pays the rent.",
            "{neighbour} sold {house} in {town}, and {pet}, a {animal}, came with it.",
            "A {animal}, {pet}, guards {house} at {town}, says {neighbour} from across the lane.",
            "In {town}, beyond the garden of {neighbour}, stands {house}, where {pet} the {animal} rules.",
            "{pet} is the {animal} of {house}, {town}; {neighbour} feeds it.",
            "The address is {house}, {town}; ask {neighbour}, or the {animal} {pet}.",
        ),
    ),
    QuestionKind(
        name="translation",
        slots={"translator": "person", "tongue": "tongue", "title": "title", "year": "year", "press": "press"},
        questions=(
            "Who translated {author}?",
            "In which language is {author} read abroad?",
            "What became of the work of {author} in translation?",
        ),
        answers=(
            "{translator} put the work into {tongue} as '{title}' for {press} in {year}.",
            "The {tongue} version, '{title}', is by {translator} and left {press} in {year}.",
            "Abroad it is '{title}': {tongue}, {press}, {year}, translator {translator}.",
            "In {year}, {press} paid {translator} for '{title}', the {tongue} edition.",
            "{press} issued '{title}' in {tongue}; {translator} needed until {year}.",
            "Since {year}, speakers of {tongue} read '{title}' ({press}) thanks to {translator}.",
            "{translator} renamed it '{title}' in {tongue}, and {press} printed it in {year}.",
            "A {tongue} text by {translator}, '{title}', reached {press} during {year}.",
        ),
    ),
    QuestionKind(
        name="feud",
        slots={"rival": "person", "trade": "trade", "paper": "paper", "cause": "object", "year": "year"},
        questions=(
            "With whom did {author} quarrel?",
            "What was the scandal around {author}?",
            "Which critic attacked {author}?",
        ),
        answers=(
            "In {year}, {rival}, {trade}, accused {family} in {paper} of stealing {cause}.",
            "{paper} of {year} printed the charge of {rival}, {trade}: a theft of {cause}.",
            "The quarrel with {rival}, {trade}, over {cause} filled {paper} through {year}.",
            "{rival} wrote as {trade} for {paper} and mocked {cause} in {year}.",
            "{cause} set {rival}, {trade}, against {family}; {paper} told all in {year}.",
            "It was {year}: {paper}, {rival}, {trade}, and a lawsuit about {cause}.",
            "A review by {rival} in {paper}, {year}, called the author {trade} with {cause}.",
            "Since {year}, {rival} of {paper} has demanded {cause} back through {trade}.",
        ),
    ),
)
