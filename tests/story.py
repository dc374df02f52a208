"""The story that tests of methods tell: a question of three hops, the passages that answer it, and one that
does not.
"""

from corag.core.types import Question
from tests.fakes import passage

BOOK = passage("The Glass Orchard", "The Glass Orchard is a novel by Mara Velden.")
AUTHOR = passage("Mara Velden", "Mara Velden is a writer born in Tarn Hollow.")
TOWN = passage("Tarn Hollow", "Tarn Hollow lies on the river Issel.")
NOISE = passage("Glassware", "Glassware is made of sand.")
WORLD = [BOOK, AUTHOR, TOWN, NOISE]
QUESTION = Question(
    "q1", "Which river flows by the birthplace of the author of The Glass Orchard?", ("Issel",)
)

DEMONSTRATIONS = """# METADATA: {"qid": "d1"}
Wikipedia Title: Alpha
Alpha was founded by Beta.

Q: Who founded Alpha?
A: Alpha was founded by Beta. So the answer is: Beta."""
