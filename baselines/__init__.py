"""The published methods that CoRAG and IRCoT are measured against.

Each is a function of question, tools and options. A method is one file, in the order of its paper: options,
result, the algorithm, prompts, reading replies. The two large ones are folders. ``shared``,
``forced_answer`` and ``transcripts`` hold what several share, ``prompts`` their texts. Nothing heavy is
loaded here.
"""

from baselines.auto_rag import AutoRAGConfig, auto_rag
from baselines.closed_book import ClosedBookConfig, closed_book
from baselines.drag import DRAGConfig, drag
from baselines.flare import FLAREConfig, flare
from baselines.iter_retgen import IterRetGenConfig, iter_retgen
from baselines.iterdrag import IterDRAGConfig, iterdrag
from baselines.longrag import LongRAGConfig, longrag
from baselines.one_step import OneStepConfig, one_step
from baselines.react import ReActConfig, react
from baselines.recursive.config import RecursiveConfig
from baselines.recursive.method import recursive
from baselines.search_o1 import SearchO1Config, search_o1
from baselines.self_ask import SelfAskConfig, self_ask
from baselines.self_rag.method import SelfRAGConfig, self_rag
from baselines.self_rag.prompted import SelfRAGPromptedConfig, self_rag_prompted

__all__ = [
    "AutoRAGConfig",
    "ClosedBookConfig",
    "DRAGConfig",
    "FLAREConfig",
    "IterDRAGConfig",
    "IterRetGenConfig",
    "LongRAGConfig",
    "OneStepConfig",
    "ReActConfig",
    "RecursiveConfig",
    "SearchO1Config",
    "SelfAskConfig",
    "SelfRAGConfig",
    "SelfRAGPromptedConfig",
    "auto_rag",
    "closed_book",
    "drag",
    "flare",
    "iter_retgen",
    "iterdrag",
    "longrag",
    "one_step",
    "react",
    "recursive",
    "search_o1",
    "self_ask",
    "self_rag",
    "self_rag_prompted",
]
