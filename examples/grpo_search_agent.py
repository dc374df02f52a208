"""Reinforcement learning of a search agent with TRL's GRPOTrainer: whole trajectories, one reward each.

    accelerate launch examples/grpo_search_agent.py --config training/configs/grpo_1gpu.yaml \
        --questions train.jsonl --dataset hotpotqa --index indexes/mine --output_dir runs/agent

The model calls the tools search and answer; corag.SearchEnvironment searches and scores. All further options
are those of TRL's GRPOConfig. The model's chat template must have tool calls, as Qwen's have. Not run by us
on a GPU.
"""

from dataclasses import dataclass

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, TrlParser

from corag import SearchEnvironment, load_questions, open_index

PROMPT = (
    "Answer the question. Call search, with one short query at a time, until you have found all that you "
    "need; then call answer.\n\nQuestion: {question}"
)


@dataclass
class Agent:
    """What is trained, on what."""

    questions: str
    index: str
    dataset: str = "jsonl"
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    k: int = 3


def main() -> None:
    """Train, or go on from the last checkpoint (--resume_from_checkpoint true), and save."""
    agent, arguments = TrlParser([Agent, GRPOConfig]).parse_args_and_config()
    questions = load_questions(agent.questions, agent.dataset)
    rows = [
        {
            "prompt": [{"role": "user", "content": PROMPT.format(question=each.text)}],
            "answers": list(each.answers),
        }
        for each in questions
    ]
    with open_index(agent.index) as index:
        trainer = GRPOTrainer(
            model=agent.model,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            environment_factory=lambda: SearchEnvironment(index, agent.dataset, k=agent.k),
        )
        trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
        trainer.save_model()


if __name__ == "__main__":
    main()
