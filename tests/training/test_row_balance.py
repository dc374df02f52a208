"""Which chains are taught how often: equally many of each length, recoveries more than once."""

from dataclasses import replace

from corag.chains.chain import Hop
from tests.training import toy
from tests.training.toy import QUESTION
from training.chains import ChainRow
from training.data import RowsConfig, balance_by_length
from training.sampling import SampledChain

CORAG = replace(toy.CORAG, max_sub_query_tokens=32, max_sub_answer_tokens=32)
ROWS = RowsConfig(validation=0.0)


def row_of(name, hops):
    """A question with a kept chain of so many hops."""
    hop = Hop("Who?", "Mara Velden", False, ("mara velden", "tarn hollow"))
    chain = SampledChain((hop,) * hops, (-1.0,), (-1.0,), hops, "length")
    return ChainRow(replace(QUESTION, id=name), ("tarn hollow",), (chain,), 0, "")


def test_chains_of_each_length_are_equally_many():
    rows = [row_of(f"q{n}", 1 + (n % 10 > 6) + (n % 10 > 8)) for n in range(100)]
    config = replace(ROWS, per_length=8)
    names = balance_by_length(rows, config)
    lengths = [len(row.chain.hops) for row in rows if row.question.id in names]
    assert [lengths.count(length) for length in (1, 2, 3)] == [8, 8, 8]
    assert balance_by_length(rows, ROWS) == {row.question.id for row in rows}
    assert balance_by_length(rows, replace(config, seed=1)) != names == balance_by_length(rows[::-1], config)
