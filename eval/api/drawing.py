"""A question's steps drawn as a tree: chains, hops, rollouts, thoughts.

It knows CoRAG's places and roles by name (chain, hop, tree, child, rollout; sub_query, sub_answer); any other
step is a line of text. What an answer has beyond the common fields it knows by the names that
:mod:`eval.report.traces` reads too: ``chains``, and ``chosen``, the index of the one that was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text
from rich.tree import Tree

from corag.core.language.text import clean_sub_answer, printable
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step

CHOSEN_MARK = "← chosen"


@dataclass
class Node:
    """What happened at one place of a method.

    Attributes:
        query: a hop's sub-query, and ``reply`` its sub-answer, ``refused`` if it says nothing.
        passage_count: how many passages its search returned, None before it.
        scores: mean log-likelihoods per token, where the answer has no score of the place.
        record: what the answer says of the chain or state that ended here.
        is_chosen: whether it leads to the chain that the answer chose.
    """

    name: str = ""
    children: dict[str, Node] = field(default_factory=dict)
    query: str = ""
    reply: str = ""
    refused: bool = False
    passage_count: int | None = None
    scores: list[float] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)
    lines: list[Text] = field(default_factory=list)
    record: Mapping[str, Any] = field(default_factory=dict)
    is_chosen: bool = False

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.rstrip("0123456789").rstrip()

    @property
    def ordered_children(self) -> list[Node]:
        """The children: kinds as they first came, each by the numbers, whichever step came first."""
        kinds = list(dict.fromkeys(child.kind for child in self.children.values()))
        return sorted(
            self.children.values(),
            key=lambda child: (kinds.index(child.kind), int(child.name[len(child.kind) :].strip() or 0)),
        )

    def at(self, path: str) -> Node:
        """Return the node of a path below this one. A sub-query that is asked for again has no place."""
        node = self
        for part in filter(None, path.split("/")):
            node = node if part.startswith("retry ") else node.children.setdefault(part, Node(part))
        return node

    def descendants(self) -> Iterator[Node]:
        """Yield all nodes below."""
        for child in self.children.values():
            yield child
            yield from child.descendants()


def draw_steps(question: str, steps: Sequence[Step], answer: Mapping[str, Any], refusal: str = "") -> Tree:
    """Draw a question's steps by the parts of their paths. Model text is shown as it is, never as markup.

    Args:
        question: the question, at the root.
        steps: its steps, in any order.
        answer: the fields of its answer.
        refusal: a method's sentence for passages that do not tell, drawn dim; "" if it has none.
    """
    root = Node()
    for step in steps:
        node = root.at(step.path)
        if isinstance(step, SearchStep):
            _add_search(node, step, question, refusal)
        elif isinstance(step, ScoreStep):
            node.scores.append(step.log_likelihood / max(1, step.tokens))
        else:
            _add_generation(node, step, refusal)
    chains, index = answer.get("chains"), answer.get("chosen")
    chosen = None
    if chains and index is not None:  # a user's own method may choose something else
        _add_records(root, chains)
        chosen = root.at(chains[index]["path"])
        _mark_chosen(root, chains[index]["path"])
    title = Text(_plain(question), style="bold")
    if any(node.kind in ("chain", "rollout", "child") and _score(node) for node in root.descendants()):
        title.append("  (scores: lower is better)", style="not bold dim")
    tree = Tree(title, guide_style="dim")
    _grow(tree, root, chosen)
    return tree


def _add_search(node: Node, step: SearchStep, question: str, refusal: str) -> None:
    count = f"({len(step.hits)} passage{'s'[: len(step.hits) != 1]})"
    if node.kind in ("hop", "child"):
        node.query, node.passage_count = step.query, len(step.hits)
        if not step.hits:  # the model is not asked then
            node.reply, node.refused = refusal, True
    else:
        query = "the question" if step.query == question else f"'{_plain(step.query)}'"
        node.lines.append(Text.assemble(("search  ", "bold"), query, (f"  {count}", "dim")))
    if step.note:
        node.notes.append(Text(step.note, style="yellow"))


def _add_generation(node: Node, step: GenerateStep, refusal: str) -> None:
    text = " ".join(step.texts)
    if step.role == "sub_query":
        if node.kind == "hop":  # of a state they are proposals
            # Until the search says what was read out of it; without one, a reply that goes on is no hop.
            node.query = next((line.strip() for line in text.splitlines() if line.strip()), "")
    elif step.role == "sub_answer":
        node.reply, node.refused = clean_sub_answer(text, refusal)
    else:
        node.lines += [
            Text.assemble((f"{_plain(step.role)}  ", "bold"), _plain(each) or "(nothing)")
            for each in step.texts
        ]
    if step.shortening:
        node.notes.append(Text(f"{step.role}: prompt shortened", style="yellow"))


def _add_records(root: Node, chains: Sequence[Mapping[str, Any]]) -> None:
    """Take from an answer's chains what steps do not say: values, why they ended, hops that were reused."""
    for record in chains:
        node = root.at(record["path"])
        node.record = record
        if node.kind == "child" and node.passage_count is None and record["hops"]:
            hop = record["hops"][-1]
            node.query, node.reply, node.refused = hop["sub_query"], hop["sub_answer"], hop["refused"]
            node.passage_count = len(hop["passage_ids"])
    for node in root.descendants():
        if node.kind == "hop" and node.passage_count is None:
            node.notes.append(Text("no hop: a repeat, or nothing to search for", style="dim"))


def _mark_chosen(root: Node, path: str) -> None:
    node = root
    for part in path.split("/"):
        node = node.children[part]
        node.is_chosen = True
    for child in node.children.values():
        child.is_chosen = child.kind == "hop"


def _grow(branch: Tree, node: Node, chosen: Node | None) -> None:
    for child in node.ordered_children:
        label = _label(child, child is chosen)
        if not child.children and len(child.lines) == 1:
            branch.add(Text("  ").join([label, child.lines[0]]))
        else:
            _grow(branch.add(label), child, chosen)
    for line in node.lines:
        branch.add(line)


def _label(node: Node, is_last_chosen: bool) -> Text:
    """Write a node: name, score, hop, why it ended, and whether it was chosen."""
    parts = [Text(_plain(node.name), style="bold green" if node.is_chosen else "bold")]
    if score := _score(node):
        parts.append(Text(score, style="cyan"))
    if node.kind in ("hop", "child") and (node.query or node.passage_count is not None):
        hop = Text(_plain(node.query) or "(no sub-query)", style="green" if node.is_chosen else "")
        if node.reply:
            hop.append(" → ")
            hop.append(_plain(node.reply), style="dim" if node.refused else "")
        parts.append(hop)
    if node.passage_count is not None:
        parts.append(Text(f"({node.passage_count} passage{'s'[: node.passage_count != 1]})", style="dim"))
    parts += node.notes
    if stopped := node.record.get("stopped"):
        parts.append(Text(f"stopped: {stopped}", style="dim"))
    if is_last_chosen:
        parts.append(Text(CHOSEN_MARK, style="bold green"))
    return Text("  ").join(parts)


def _score(node: Node) -> str:
    """Write a chain's score, what a state is worth, or the scores that came in."""
    name = "value" if node.kind == "child" else "score"
    if (final := node.record.get(name)) is not None:
        return f"{name} {final:.2f}"
    return f"score {', '.join(f'{score:.2f}' for score in node.scores)}" if node.scores else ""


def _plain(text: str) -> str:
    """Write a model's text on one line, without characters that would command the terminal."""
    return " ".join(printable(text).split())
