"""A question's steps drawn as a tree: chains, hops, rollouts, thoughts.

It knows CoRAG's places and roles by name (chain, hop, tree, child, rollout; sub_query, sub_answer,
stop_check, draft); any other step is a line of text. What an answer has beyond the common fields it knows by
the names that :mod:`eval.report.traces` reads too: ``chains``, and ``chosen``, the index of the one that was
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text
from rich.tree import Tree

from corag.core.text import clean_sub_answer, printable
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step

CHOSEN_MARK = "← chosen"
REUSED_NOTE = "reused rollout"
_ORDER = ("question", "chain", "tree", "step", "hop", "rollout", "child")


@dataclass
class Node:
    """What happened at one place of a method.

    Attributes:
        passage_count: how many passages its search returned, None before it.
        record: what the answer says of the chain or state that ended here.
        on_chosen_way: whether it leads to the chain that the answer chose.
    """

    name: str = ""
    children: dict[str, Node] = field(default_factory=dict)
    sub_query: str = ""
    sub_answer: str = ""
    refused: bool = False
    passage_count: int | None = None
    proposals: int = 0
    retries: int = 0
    scores: list[float] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    lines: list[Text] = field(default_factory=list)
    record: Mapping[str, Any] = field(default_factory=dict)
    on_chosen_way: bool = False

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.rstrip("0123456789").rstrip()

    @property
    def order(self) -> tuple[int, int]:
        """Where the node stands among its siblings, whichever step came first."""
        number = self.name[len(self.kind) :].strip()
        return (_ORDER.index(self.kind) if self.kind in _ORDER else len(_ORDER), int(number or 0))

    @property
    def ordered_children(self) -> list[Node]:
        """The children in the order of their numbers."""
        return sorted(self.children.values(), key=lambda child: child.order)


class Drawing:
    """Turns a question's steps into a tree by the parts of their paths.

    Model text is shown as it is, never as markup.
    """

    def __init__(
        self, question: str, steps: Sequence[Step], answer: Mapping[str, Any], refusal: str = ""
    ) -> None:
        """``answer``: its fields.

        ``refusal``: a method's sentence for passages that do not tell, drawn dim; "" if it has none.
        """
        self._question = question
        self._refusal = refusal
        self._root = Node()
        self._chosen_end: Node | None = None
        for step in steps:
            self._add(step)
        self._finish(answer)

    def _add(self, step: Step) -> None:
        """Note a finished step."""
        node = self._at(step.path)
        if isinstance(step, SearchStep):
            self._add_search(node, step)
            return
        if isinstance(step, ScoreStep):
            mean = step.log_likelihood / max(1, step.tokens)
            if step.role == "score":
                node.scores.append(mean)
            else:
                node.notes.append((f"{step.role} {mean:.2f}", "dim"))
        else:
            self._add_generation(node, step)
        if step.shortening:
            node.notes.append((f"{step.role}: prompt shortened", "yellow"))

    def _finish(self, answer: Mapping[str, Any]) -> None:
        """Take from an answer's fields what steps do not say: values, why chains ended, the chosen one."""
        chains, index = answer.get("chains"), answer.get("chosen")
        if not chains or index is None:  # a user's own method may choose something else
            return
        for record in chains:
            node = self._at(record["path"])
            node.record = record
            if node.kind == "child" and node.passage_count is None and record["hops"]:
                hop = record["hops"][-1]
                node.sub_query, node.sub_answer = hop["sub_query"], hop["sub_answer"]
                node.refused, node.passage_count = hop["refused"], len(hop["passage_ids"])
                node.notes.append((REUSED_NOTE, "dim"))
        for node in _descendants(self._root):
            if node.kind == "hop" and node.passage_count is None:
                node.notes.append(("repeats or blank: no hop", "dim"))
        node = self._root
        for part in chains[index]["path"].split("/"):
            node = node.children[part]
            node.on_chosen_way = True
        self._chosen_end = node
        for child in node.children.values():
            child.on_chosen_way = child.kind == "hop"

    def tree(self) -> Tree:
        """Draw all of it."""
        title = Text(_plain(self._question), style="bold")
        if any(_has_score(node) for node in _descendants(self._root)):
            title.append("  (scores: lower is better)", style="not bold dim")
        tree = Tree(title, guide_style="dim")
        self._grow(tree, self._root)
        return tree

    def _at(self, path: str) -> Node:
        """Return the node of a path.

        Asking again for a sub-query happens at the place that first asked for it.
        """
        node = self._root
        for part in filter(None, path.split("/")):
            if part.startswith("retry "):
                node.retries += 1
            else:
                node = node.children.setdefault(part, Node(part))
        return node

    def _add_search(self, node: Node, step: SearchStep) -> None:
        count = _count_text(len(step.hits), "passage")
        if node.kind in ("hop", "child"):
            node.sub_query, node.passage_count = step.query, len(step.hits)
            if not step.hits:  # the model is not asked then
                node.sub_answer, node.refused = self._refusal, True
        else:
            query = "the question" if step.query == self._question else f"'{_plain(step.query)}'"
            node.lines.append(Text.assemble(("search  ", "bold"), query, (f"  ({count})", "dim")))
        if step.note:
            node.notes.append((step.note, "yellow"))

    def _add_generation(self, node: Node, step: GenerateStep) -> None:
        text = " ".join(step.texts)
        if step.role == "sub_query" and node.kind != "hop":
            node.proposals += len(step.texts)
        elif step.role == "sub_query":
            # until the search tells what was read out of it; without one, a reply that goes on is no hop
            node.sub_query = next((line.strip() for line in text.splitlines() if line.strip()), "")
        elif step.role == "sub_answer":
            node.sub_answer, node.refused = clean_sub_answer(text, self._refusal)
        elif step.role in ("stop_check", "draft"):
            label = "enough?" if step.role == "stop_check" else "draft:"
            node.notes.append((f"{label} {_plain(text)}", "dim"))
        else:
            node.lines += [
                Text.assemble((f"{_plain(step.role)}  ", "bold"), _plain(each) or "(nothing)")
                for each in step.texts
            ]

    def _grow(self, branch: Tree, node: Node) -> None:
        for child in node.ordered_children:
            label = self._label(child)
            alone = not child.children and len(child.lines) == 1
            if alone:
                label = Text("  ").join([label, child.lines[0]])
            twig = branch.add(label)
            if not alone:
                self._grow(twig, child)
        for line in node.lines:
            branch.add(line)

    def _label(self, node: Node) -> Text:
        """Write a node: name, score, hop, what else is known of it, and whether it was chosen."""
        name = Text(_plain(node.name), style="bold green" if node.on_chosen_way else "bold")
        parts = [name, *_scores(node)]
        if node.sub_query or node.passage_count is not None:
            parts.append(_hop(node))
        elif node.kind == "child":
            parts.append(Text(REUSED_NOTE, style="dim"))
        if node.passage_count is not None:
            parts.append(Text(f"({_count_text(node.passage_count, 'passage')})", style="dim"))
        if node.retries:
            parts.append(Text(f"asked {node.retries + 1} times", style="dim"))
        if node.proposals and all(child.kind != "child" for child in node.children.values()):
            parts.append(Text(f"{node.proposals} sub-queries sampled", style="dim"))
        parts += [Text(text, style=style) for text, style in node.notes]
        if stopped := node.record.get("stopped"):
            parts.append(Text(f"stopped: {stopped}", style="dim"))
        if node is self._chosen_end:
            parts.append(Text(CHOSEN_MARK, style="bold green"))
        return Text("  ").join(parts)


def _descendants(node: Node) -> Iterator[Node]:
    for child in node.children.values():
        yield child
        yield from _descendants(child)


def _has_score(node: Node) -> bool:
    return bool(_scores(node)) and node.kind in ("chain", "rollout", "child")


def _scores(node: Node) -> list[Text]:
    """Write a chain's score, what a state is worth, or the scores that came in."""
    state = node.kind == "child"
    if (final := node.record.get("value" if state else "score")) is not None:
        return [Text(f"{'value' if state else 'score'} {final:.2f}", style="cyan")]
    measurements = ", ".join(f"{score:.2f}" for score in node.scores)
    return [Text(f"{'scored' if state else 'score'} {measurements}", style="cyan")] if measurements else []


def _hop(node: Node) -> Text:
    text = Text(_plain(node.sub_query) or "(no sub-query)", style="green" if node.on_chosen_way else "")
    if node.sub_answer:
        text.append(" → ")
        text.append(_plain(node.sub_answer), style="dim" if node.refused else "")
    return text


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _plain(text: str) -> str:
    """Write a model's text on one line, without characters that would command the terminal."""
    return " ".join(printable(text).split())
