"""Sentences that open a passage, sentences that only fill it, and passages that answer nothing.

A table, apart from ``passages``, which draws from it: who wants other prose changes this file alone.
In openings ``{name}`` is the page's subject in full and ``{relation name}`` what a relation leads to. The
other slots are those of :mod:`eval.datasets.world.relations`, plus small words (``{month}``, ``{dish}`` ...)
from :data:`WORDS`.
"""

from __future__ import annotations

from eval.datasets.world.relations import Kind

OPENINGS: dict[Kind, tuple[str, ...]] = {
    Kind.PERSON: (
        "{name} (born {birth_year}) was a {profession}.",
        "{name}, born in {birth_year}, was a {profession}.",
        "Born in {birth_year}, {name} was a noted {profession}.",
        "{name} was a {profession} who was born in {birth_year}.",
        "{name} (born {birth_year}) was a {profession} from {born_in}.",
        "{name} was born in {born_in} in {birth_year} and became a {profession}.",
    ),
    Kind.TOWN: (
        "{name} is a town in {region}.",
        "{name} is a market town in the region of {region}.",
        "{name} is a town of {population} inhabitants.",
        "{name} is an old town on {river}.",
    ),
    Kind.REGION: (
        "{name} is a region whose capital is {capital}.",
        "{name} is a hilly region known for its {product}.",
        "{name} is a largely rural region.",
    ),
    Kind.RIVER: (
        "{name} is a river that rises at {source}.",
        "{name} is a river {length} long.",
        "{name} is a slow and winding river.",
    ),
    Kind.COMPANY: (
        "{name} is a {gloss} based in {seat}.",
        "{name} is a {gloss} founded in {founded}.",
        "Founded in {founded} by {founder}, {name} is a {gloss}.",
        "{name} is a {gloss} that was set up by {founder}.",
    ),
    Kind.BOOK: (
        "{name} is a {gloss} by {author}.",
        "{name} is a {gloss} written by {author} and published in {published}.",
        "First published in {published}, {name} is a {gloss} set in {set_in}.",
        "{name} is a {gloss} that first appeared in {published}.",
    ),
    Kind.FESTIVAL: (
        "{name} is a {gloss} held every year in {held_in}.",
        "{name} is a yearly {gloss} that was first held in {first_held}.",
        "{name} is a {gloss} started by {initiator}.",
    ),
    Kind.BATTLE: (
        "{name} was fought near {fought_near} in {fought}.",
        "{name} was an armed clash of {fought}.",
        "{name} was a short battle near {fought_near}.",
    ),
}

COLOUR: dict[Kind, tuple[str, ...]] = {
    Kind.PERSON: (
        "{S} was remembered as patient and rather shy.",
        "{S} kept a diary, most of which is lost.",
        "{S} liked to work early in the morning.",
        "{S} played the {instrument} and owned a large collection of {thing}.",
        "{P} letters are full of advice about {dish} and {thing}.",
        "{S} spoke several languages and travelled widely.",
        "In later life {p} eyesight failed, but {p} work went on.",
        "{P} papers were found in an attic in {month}.",
        "A portrait of {p} family hangs in a private collection.",
        "Friends praised {p} dry humour and {p} {dish}.",
        "{S} disliked {thing} and said so often.",
        "Much of {p} work was admired only by a later generation.",
    ),
    Kind.TOWN: (
        "{P} market square is lined with {tree} trees.",
        "{P} weekly market sells {dish} and {thing}.",
        "Visitors come in {month}, when the gardens are at their best.",
        "{P} oldest building is a stone granary.",
        "The narrow streets were paved after a great fire.",
        "A local dish, {dish}, is served on holidays.",
        "Its hall burned down twice and was rebuilt twice.",
        "Many of {p} houses have painted doors.",
        "{P} small museum shows {thing} from the surrounding farms.",
        "There is a school for the {instrument}, and a botanical garden.",
    ),
    Kind.REGION: (
        "Most of {p} land is used for grazing.",
        "Winters are long, and the first snow often falls in {month}.",
        "{P} forests of {tree} trees are protected.",
        "Farmers here still wear a grey felt hat.",
        "{P} dialect is hard for strangers to understand.",
        "A dish of {dish} is eaten at weddings.",
        "{P} flag shows a {animal} on a green field.",
        "Old roads cross {p} southern valleys.",
        "Travellers have praised {p} quiet inns.",
    ),
    Kind.RIVER: (
        "{P} banks are lined with {tree} trees.",
        "In {month} {p} water often floods the meadows.",
        "The {animal} has returned to {p} upper valley.",
        "Flat boats once carried {thing} downstream.",
        "{P} water is cold even in summer.",
        "Anglers visit it from spring to autumn.",
        "Several mills once stood on {p} banks.",
        "A path for walkers follows most of {p} course.",
    ),
    Kind.COMPANY: (
        "{P} sign shows a {animal} and a {tree} leaf.",
        "{S} survived two fires and a long strike.",
        "{P} workers have their own choir.",
        "Every {month} {p} gates are opened to visitors.",
        "{P} old account books are kept in a museum.",
        "{S} was one of the first to offer its workers {dish} at noon.",
        "{S} never borrowed money in its early years.",
        "{P} main hall was once a store for {thing}.",
        "Its rivals copied its methods without much success.",
    ),
    Kind.BOOK: (
        "It tells of a family that trades in {thing}.",
        "{P} hero is a {instrument} player who has lost a {animal}.",
        "Critics praised its style and complained about its length.",
        "{P} first printing sold out within weeks.",
        "A scene with {dish} became proverbial.",
        "It was written during a rainy {month}.",
        "The manuscript was lost for years in a box of {thing}.",
        "Schoolchildren still learn its first page by heart.",
        "Its cover shows a {animal} under a {tree} tree.",
    ),
    Kind.FESTIVAL: (
        "It opens with a concert for {instrument} and drums.",
        "Visitors eat {dish} and dance until late.",
        "The winner receives a silver {animal}.",
        "It falls on the first weekend of {month}.",
        "Stalls sell {thing} and sweet cider.",
        "It was cancelled only once, because of a flood.",
        "Every guest brings a branch of {tree}.",
        "Children carry paper lanterns on the last evening.",
    ),
    Kind.BATTLE: (
        "It began in thick fog and lasted less than a day.",
        "Heavy rain in {month} had turned the ground to mud.",
        "The quarrel had begun over the price of {thing}.",
        "A song for {instrument} recalls the event.",
        "A {tree} tree was planted there in memory of the dead.",
        "Historians disagree about the number of troops.",
        "The losing side left its {thing} behind.",
        "A {animal} carved in stone now marks the place.",
    ),
}

# Passages that mention a thing of the world without answering anything about it: (title, texts).
LANDMARKS: dict[Kind, tuple[tuple[str, tuple[str, ...]], ...]] = {
    Kind.TOWN: (
        (
            "{name} Bridge",
            (
                "{name} Bridge is an arched bridge of grey stone in the town of {name}. It replaced a ferry "
                "for carts and cattle. The builders mixed the lime with {dish}, or so the story goes. Every "
                "{month} it is closed to traffic for a day.",
                "{name} Bridge carries the main street of {name} over a canal. A carved {animal} stands at "
                "either end. Repairs were paid for by a tax on {thing}, which made the bridge unpopular for "
                "years. A {tree} tree grows from its middle arch.",
            ),
        ),
        (
            "{name} Gazette",
            (
                "The {name} Gazette is a weekly newspaper read in {name} and the villages around it. It "
                "prints news of markets, weddings and the prices of {thing}, and a weekly riddle. Its "
                "{month} issue always has a recipe for {dish}.",
                "The {name} Gazette was a newspaper sold in the streets of {name}. It had four pages, one "
                "of them about {thing}. Readers paid for it in {dish} when money was short. Its editor was "
                "known for a tame {animal} that slept under the printing table.",
            ),
        ),
    ),
    Kind.PERSON: (
        (
            "{name} Prize",
            (
                "The {name} Prize is given every {month} for work in the spirit of {name}. The winner "
                "receives a bronze {animal} and a dinner of {dish}. A jury of five reads the proposals in "
                "secret and never explains its choice.",
                "The {name} Prize, called after {name}, honours young people who restore old {thing}. It is "
                "handed over in {month} at a small ceremony with {instrument} music. The prize money has not "
                "changed for decades, and {dish} is served.",
            ),
        ),
    ),
    Kind.BOOK: (
        (
            "{name} (film)",
            (
                "{name} is a silent film based on the {gloss} of the same name. It was shot in {month} with "
                "a cast of amateurs and a trained {animal}. Only a few reels survive, one of them found in "
                "a cellar among {thing}.",
                "{name} is a film drawn from the {gloss} of the same title. Reviewers liked the "
                "{instrument} music better than the acting. A long scene about {dish} was cut after the "
                "first showing. The prints were stored under a {tree} tree and spoiled.",
            ),
        ),
    ),
}  # fmt: skip

WORDS: dict[str, tuple[str, ...]] = {
    "month": ("March", "April", "May", "June", "July", "August", "September", "October", "November"),
    "tree": ("lime", "chestnut", "plane", "birch", "walnut", "willow", "poplar", "pear", "maple", "beech"),
    "animal": (
        "heron", "beaver", "stork", "badger", "hare", "raven", "fox", "swan", "goose", "trout", "lynx",
        "mule",
    ),
    "dish": (
        "barley soup", "plum cake", "pickled fish", "onion bread", "roast goose", "pea stew",
        "honey cake", "mushroom pie",
    ),
    "thing": (
        "lanterns", "clocks", "ropes", "baskets", "saddles", "candles", "maps", "buttons", "barrels",
        "carpets", "kites",
    ),
    "instrument": ("fiddle", "flute", "harp", "trumpet", "lute", "cello", "zither", "horn"),
}  # fmt: skip

NOUNS: dict[Kind, str] = {
    Kind.TOWN: "the town",
    Kind.REGION: "the region",
    Kind.RIVER: "the river",
    Kind.COMPANY: "the company",
    Kind.BOOK: "the book",
    Kind.FESTIVAL: "the event",
    Kind.BATTLE: "the battle",
}
"""What a page may call its subject after the first sentence."""
