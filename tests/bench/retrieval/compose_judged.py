"""Writes the company's part of the judged set: passages about parts, faults, clauses and releases.

    python tests/bench/retrieval/compose_judged.py tests/bench/retrieval/judged

Such papers are written from tables, so these are composed: sentences by hand, figures by a fixed
seed. Each passage has siblings that differ in a number or a letter, as price lists and contracts
do. Questions by identifier and some plain ones come with their judgements from the same tables;
nothing here looks at what a search finds.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

SEED = 20261123
_FAMILIES = (
    ("HX", "plate heat exchanger", "It moves heat between two closed circuits without mixing them.",
     ("rated pressure", "bar"), ("plates", "")),
    ("CP", "centrifugal pump", "It lifts clear liquids and must be filled before it is started.",
     ("flow", "cubic metres an hour"), ("head", "metres")),
    ("DV", "diaphragm valve", "It shuts off slurries and acids, which never touch its spindle.",
     ("rated pressure", "bar"), ("bore", "millimetres")),
    ("FM", "magnetic flow meter", "It measures liquids that conduct, without moving parts.",
     ("largest flow", "litres a minute"), ("accuracy", "thousandths of the reading")),
    ("GB", "helical gearbox", "It slows a motor down and turns its speed into torque.",
     ("torque", "newton metres"), ("oil", "litres")),
    ("AC", "screw compressor", "It supplies dry air to tools and runs day and night.",
     ("delivery", "litres a second"), ("power", "kilowatts")),
    ("BT", "lead battery cabinet", "It carries control rooms through a power cut.",
     ("capacity", "ampere hours"), ("weight", "kilograms")),
    ("LS", "ultrasonic level sensor", "It looks at tanks from above and touches nothing in them.",
     ("range", "centimetres"), ("supply", "volts")),
    ("CV", "belt conveyor", "It carries boxes on the level and up gentle slopes.",
     ("load", "kilograms a metre"), ("speed", "metres a minute")),
)  # fmt: skip
_MATERIALS = ("stainless steel", "ductile iron", "bronze", "coated aluminium", "glass-filled nylon")
_SITES = ("Brno", "Lille", "Turku", "Porto", "Graz", "Cork")
_FAULTS = (
    ("the drive draws more current than its plate allows", "a blocked rotor or a worn bearing",
     "Switch it off, turn the shaft by hand and measure the insulation before the next start."),
    ("a door was opened while the machine was moving", "a loose interlock or an impatient hand",
     "Close all covers, acknowledge at the panel and check the interlock with the door ajar."),
    ("two sensors of one tank contradict each other", "foam, condensation or a slipped bracket",
     "Compare both with the sight glass and recalibrate the one that is wrong."),
    ("messages of a remote station stay away", "a broken cable or an address that exists twice",
     "Look at the lamp of the port, then take stations off the bus one after another."),
    ("the oil is hotter than it may be", "a clogged cooler or too little oil",
     "Let it run without load for ten minutes, clean the fins and top up when it is cold."),
    ("the stored recipe does not fit the tool that is mounted", "a change of tool without scanning",
     "Scan the plate of the tool again or load the recipe that belongs to it."),
    ("supply voltage dipped for longer than a tenth of a second", "a heavy neighbour on the line",
     "Restart the controller and ask the works electrician for the record of the feeder."),
    ("a batch was weighed outside its limits three times in a row", "a sticking feeder flap",
     "Empty the scale, free the flap and weigh a known weight before the line goes on."),
)  # fmt: skip
_PARTIES = ("Halvorsen Freight", "Quellmann Chemicals", "Ostrava Castings", "Brightwater Utilities",
            "Lindqvist Tooling", "Sao Roque Packaging", "Verbruggen Cold Storage")  # fmt: skip
_CLAUSES = (
    ("payment", "Invoices are due {a} days after they arrive; later ones bear {b} percent a year.",
     "When are invoices of {party} due?"),
    ("liability", "Damages are capped at {a} thousand euros an event and {b} events a year.",
     "How much does {party} have to pay at most when it causes damage?"),
    ("termination", "Either side may end it in writing {a} days before the end of any quarter, "
     "the first time after {b} months.", "How can the agreement with {party} be ended?"),
    ("secrecy", "What one side learns about the other stays confidential for {a} years; a breach "
     "costs {b} thousand euros.", "How long must {party} keep what it learns to itself?"),
    ("acceptance", "Goods count as accepted {a} days after arrival unless defects are reported; "
     "samples of {b} pieces are enough.", "How long may we take to complain to {party}?"),
    ("price changes", "Prices may rise once a year by {a} percent at most, announced {b} weeks "
     "before.", "By how much may {party} raise its prices?"),
    ("force majeure", "Deadlines move while strikes, floods or embargoes last; after {a} days "
     "either side may withdraw, with {b} days of notice.",
     "What happens with {party} when there is a strike?"),
    ("audits", "Books and premises are open to our auditors {a} times a year, announced {b} days "
     "before.", "How often may we inspect the premises of {party}?"),
)  # fmt: skip
_CHANGES = (
    "Orders can be split between two warehouses, each with a delivery note of its own.",
    "The stocktaking screen remembers the shelf where it was left.",
    "A label printer that is out of paper no longer stops the whole queue.",
    "Reports are computed at night and open without waiting in the morning.",
    "Passwords of service accounts end after ninety days, with a warning two weeks before.",
    "The import of price lists says in which line a number is malformed.",
    "Drivers sign on the handheld, and the picture is kept with the order.",
    "Time zones of plants are respected where shifts are planned.",
    "Suppliers see their own open orders and nothing else.",
    "A search for a customer also looks at former names.",
    "Archived orders can be read but are no longer changed by mistake.",
    "Mail about late deliveries goes to the planner on duty instead of everybody.",
)


@dataclass
class Composed:
    """Passages and the questions that belong to them."""

    passages: list[dict[str, str]] = field(default_factory=list)
    questions: list[dict[str, object]] = field(default_factory=list)

    def passage(self, key: str, document: str, section: str, text: str) -> str:
        self.passages.append({"id": key, "document": document, "section": section, "text": text})
        return key


def _parts(made: Composed, chance: random.Random) -> list[str]:
    numbers = []
    for code, name, about, first, second in _FAMILIES:
        for number in sorted(chance.sample(range(1000, 9999), 5)):
            for variant in "AB":
                part = f"{code}-{number}-{variant}"
                one, two = chance.randrange(4, 400), chance.randrange(2, 90)
                made.passage(
                    f"part-{part.lower()}",
                    f"Catalogue: {name}",
                    f"{part}",
                    f"{part} is a {name} with a housing of {chance.choice(_MATERIALS)}. {about} "
                    f"Its {first[0]} is {one} {first[1]}".rstrip()
                    + f", its {second[0]} {two} {second[1]}".rstrip()
                    + f". It is stocked in {chance.choice(_SITES)} and delivered within "
                    f"{chance.randrange(2, 30)} working days. Spare seals are ordered as "
                    f"{part}/S, and it may stay outdoors between minus "
                    f"{chance.randrange(5, 40)} and {chance.randrange(41, 70)} degrees.",
                )
                numbers.append(part)
    for part in chance.sample(numbers, 20):
        code = part.split("-")[0]
        family = next(each for each in _FAMILIES if each[0] == code)
        what = chance.choice((f"What is the {family[3][0]} of {part}?",
                              f"Where is {part} stocked?",
                              f"How many working days does a delivery of {part} take?",
                              f"How cold may it be outdoors for {part.lower()}?"))  # fmt: skip
        made.questions.append(
            {"kind": "identifier", "text": what, "relevant": {f"part-{part.lower()}": 2}}
        )
    return numbers


def _faults(made: Composed, chance: random.Random, parts: list[str]) -> list[str]:
    codes = []
    for number in sorted(chance.sample(range(100, 999), 72)):
        code = f"E{number}-{chance.randrange(10, 99)}"
        what, why, how = chance.choice(_FAULTS)
        part = chance.choice(parts)
        made.passage(
            f"fault-{code.lower()}",
            "Fault messages of line controllers",
            f"Fault {code}",
            f"{code} is shown when {what}. On lines with {part} the usual cause is {why}. {how} "
            f"After {chance.randrange(2, 9)} repetitions within {chance.randrange(5, 50)} minutes "
            f"the line stays locked until a key of level {chance.randrange(2, 5)} releases it.",
        )
        codes.append(code)
    for code in chance.sample(codes, 18):
        what = chance.choice((f"What should I do when the panel shows {code}?",
                              f"What does fault {code} mean?",
                              f"{code}: who can release the line again?"))  # fmt: skip
        made.questions.append(
            {"kind": "identifier", "text": what, "relevant": {f"fault-{code.lower()}": 2}}
        )
    return codes


def _contracts(made: Composed, chance: random.Random) -> None:
    asked = []
    for place, party in enumerate(_PARTIES):
        number = f"MSA-{chance.randrange(2019, 2026)}-{chance.randrange(100, 999):04}"
        for clause, (topic, text, question) in enumerate(_CLAUSES, 1):
            figures = text.format(a=chance.randrange(2, 90), b=chance.randrange(2, 14))
            key = made.passage(
                f"clause-{number.lower()}-{clause}",
                f"Framework agreement {number} with {party}",
                f"{clause + 4}.{place + 1} {topic.capitalize()}",
                f"Clause {clause + 4}.{place + 1} of {number}, {topic}. {figures} What is agreed "
                "by word of mouth counts only once it is confirmed in writing by both sides.",
            )
            asked.append((key, f"{clause + 4}.{place + 1}", number, topic, question, party))
    for key, clause, number, *_ in chance.sample(asked, 14):
        made.questions.append(
            {"kind": "identifier", "text": f"What does clause {clause} of {number} say?",
             "relevant": {key: 2}}
        )  # fmt: skip
    for key, _, _, _, question, party in chance.sample(asked, 24):
        made.questions.append(
            {"kind": "plain", "text": question.format(party=party), "relevant": {key: 2}}
        )


def _releases(made: Composed, chance: random.Random) -> None:
    versions = []
    for major in (3, 4):
        for minor in range(1, 13):
            version = f"{major}.{minor}.{chance.randrange(0, 9)}"
            changes = chance.sample(_CHANGES, 4)
            made.passage(
                f"release-{version}",
                "Release notes of the warehouse software",
                f"Version {version}",
                f"Version {version} was installed in {chance.choice(_SITES)} first. "
                + " ".join(changes)
                + f" The database grows by {chance.randrange(2, 40)} gigabytes during the update, "
                f"which takes {chance.randrange(5, 55)} minutes.",
            )
            versions.append(version)
    for version in chance.sample(versions, 8):
        what = chance.choice((f"What is new in version {version} of the warehouse software?",
                              f"How long does the update to {version} take?"))  # fmt: skip
        made.questions.append(
            {"kind": "identifier", "text": what, "relevant": {f"release-{version}": 2}}
        )


def _unanswerable(
    made: Composed, chance: random.Random, parts: list[str], codes: list[str]
) -> None:
    """Identifiers of the same shapes that nothing holds."""
    for _ in range(7):
        code = chance.choice(_FAMILIES)[0]
        part = f"{code}-{chance.randrange(1000, 9999)}-{chance.choice('CDEF')}"
        assert part not in parts
        made.questions.append(
            {"kind": "unanswerable", "text": f"What is the rated pressure of {part}?",
             "relevant": {}}
        )  # fmt: skip
    for _ in range(7):
        code = f"E{chance.randrange(1000, 1999)}-{chance.randrange(10, 99)}"
        assert code not in codes
        made.questions.append(
            {"kind": "unanswerable", "text": f"What does fault {code} mean?", "relevant": {}}
        )
    for _ in range(4):
        made.questions.append(
            {"kind": "unanswerable",
             "text": f"What does clause 21.{chance.randrange(1, 9)} of MSA-2017-0"
             f"{chance.randrange(100, 999)} say?", "relevant": {}}
        )  # fmt: skip


def compose() -> Composed:
    """All of it, the same each time."""
    made, chance = Composed(), random.Random(SEED)
    parts = _parts(made, chance)
    codes = _faults(made, chance, parts)
    _contracts(made, chance)
    _releases(made, chance)
    _unanswerable(made, chance, parts, codes)
    return made


def number_and_split(questions: list[dict[str, object]], prefix: str) -> None:
    """Give each question an id, and half of each kind to what no choice may look at."""
    chance = random.Random(SEED)
    for kind in sorted({str(each["kind"]) for each in questions}):
        own = [each for each in questions if each["kind"] == kind]
        chance.shuffle(own)
        for place, each in enumerate(own):
            each["split"] = "dev" if place < len(own) // 2 else "held"
    for number, each in enumerate(questions, 1):
        each["id"] = f"{prefix}-{number:03}"


def main(folder: Path) -> None:
    """Write ``company.jsonl`` and ``company_questions.jsonl``."""
    made = compose()
    number_and_split(made.questions, "company")
    for name, rows in (
        ("company.jsonl", made.passages),
        ("company_questions.jsonl", made.questions),
    ):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (folder / name).write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
