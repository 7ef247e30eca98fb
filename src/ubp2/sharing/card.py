"""The model card of a run: README.md as the Hugging Face Hub reads it, metadata first, then what a stranger asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import TEACHERS
from ubp2.storage.runs import Run, read_metrics

__all__ = ["Facts", "card", "gather"]

_METRICS = {  # of the policy, which is what is published
    "policy/success_any": ("success_rate", "Success at any step"),
    "policy/success_last": ("success_rate_last", "Success at the last step"),
    "policy/return": ("mean_reward", "Mean return"),
}

_SCRIPTED = {"custom": "a teacher given from Python"}  # besides the teachers that have a name


class Facts(NamedTuple):
    """What the card tells of a run, and nothing that says who or where."""

    metadata: Mapping[str, Any]  # of the exported policy
    run: Run
    scores: Mapping[str, float]  # of the last evaluation, by its name in the metrics; empty: there was none
    evaluated: int  # decision of that evaluation
    teachers: dict[str, int]  # answers by scripted teachers, by name, and by people
    people: int  # how many of those answered
    versions: Mapping[str, str]
    device: str


def gather(run: Run, metadata: Mapping[str, Any]) -> Facts:
    """Read the facts from a run folder."""
    rows = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    last = rows[-1] if rows else {"decision": 0}
    scores = {name: last[name] for name in _METRICS if last.get(name) is not None}
    answers = _answers(run)
    people = {name for name in answers if name not in TEACHERS and name not in _SCRIPTED}
    teachers = {_SCRIPTED.get(name, name): count for name, count in answers.items() if name not in people}
    if people:
        teachers["people"] = sum(answers[name] for name in people)
    info = run.info()
    return Facts(
        metadata, run, scores, last["decision"], teachers, len(people), info["versions"], info.get("device", "unknown")
    )


def _answers(run: Run) -> Counter[str]:
    """Answers that count, by who gave them."""
    if not run.labels.exists():
        return Counter()
    with LabelStore(run.labels) as store:
        return Counter(given.annotator for given in store.given() if given.weight > 0)


def card(facts: Facts, repo: str, files: Sequence[str]) -> str:
    """The text of README.md; `files` are the names of all others."""
    sections = [
        f"---\n{yaml.safe_dump(_front(facts, repo), sort_keys=False, allow_unicode=True)}---",
        f"# {repo.rpartition('/')[2]}",
        _what(facts),
        *(["![Learning curves of the run](curve.png)"] if "curve.png" in files else []),
        *(["[A filmed episode](clip.mp4)"] if "clip.mp4" in files else []),
        f"## Scores\n\n{_scores(facts)}",
        f"## Use\n\n{_use(facts, repo)}",
        f"## Training\n\n{_training(facts)}",
        f"## Limits\n\n{_limits(facts)}",
        f"## Files\n\n{_files(files)}",
    ]
    return "\n\n".join(sections) + "\n"


def _front(facts: Facts, repo: str) -> dict[str, Any]:
    """Metadata by the names that the Hub knows."""
    config = facts.run.config
    tags = ["reinforcement-learning", "preference-based-reinforcement-learning", "ubp2", config.agent, config.env]
    front: dict[str, Any] = {
        "library_name": "ubp2",
        "pipeline_tag": "reinforcement-learning",
        "tags": list(dict.fromkeys(tags)),
    }
    if facts.scores:
        metrics = [
            {"type": _METRICS[name][0], "value": round(float(value), 4), "name": _METRICS[name][1]}
            for name, value in facts.scores.items()
        ]
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"name": config.env, "type": config.env}, "metrics": metrics}
        front["model-index"] = [{"name": repo.rpartition("/")[2], "results": [result]}]
    return front


def _what(facts: Facts) -> str:
    config, metadata = facts.run.config, facts.metadata
    learned = "the true reward (a research upper bound)" if config.ceiling else "comparisons of clips, without a reward"
    return (
        f"A policy for `{config.env}`, learned with the package ubp2 (agent `{config.agent}`) from {learned}: "
        f"{metadata['decisions']:,} decisions, {metadata['labels']:,} labels."
    )


def _scores(facts: Facts) -> str:
    if not facts.scores:
        return "This run was not evaluated."
    config, metadata = facts.run.config, facts.metadata
    lines = ["| | policy |", "|---|---|"]
    lines += [f"| {_METRICS[name][1]} | {value:.3g} |" for name, value in facts.scores.items()]
    text = "\n".join(lines) + (
        f"\n\nEvaluation at decision {facts.evaluated:,}, without exploration; episodes: {config.evaluation.episodes}, "
        f"seeds from {config.evaluation.seed} on. One training seed ({config.seed}): how far seeds differ is not known."
    )
    if facts.evaluated != metadata["decisions"]:
        text += f" The policy published here is that of decision {metadata['decisions']:,}."
    return text


def _use(facts: Facts, repo: str) -> str:
    metadata = facts.metadata
    steps = "1 simulator step" if metadata["action_repeat"] == 1 else f"{metadata['action_repeat']} simulator steps"
    return (
        f"`policy.npz` and `numpy_policy.py`, which lie in this repository, need NumPy and nothing else:\n\n"
        f"```python\nfrom numpy_policy import load_policy\n\n"
        f'policy = load_policy("policy.npz")\naction = policy.act(obs)\n```\n\n'
        f"An observation is {metadata['obs_dim']} numbers, an action {metadata['action_dim']}, within the bounds of "
        f"the environment, for {steps}. To fetch the files: `hf download {repo}`."
    )


def _training(facts: Facts) -> str:
    config, info = facts.run.config, facts.run.info()
    given = ", ".join(f"{count:,} by {name}" for name, count in facts.teachers.items()) or "none"
    if facts.people:
        given += f" ({facts.people} of them)"
    rows = {
        "environment": f"`{config.env}`" + (", given from Python" if info.get("custom_environment") else ""),
        "agent": f"`{config.agent}`",
        "decisions": f"{facts.metadata['decisions']:,} of {config.steps:,}",
        "answers to comparisons": given,
        "query strategy": f"`{config.preferences.strategy}`",
        "seed": str(config.seed),
        "device": facts.device,
        "versions": ", ".join(f"{name} {version}" for name, version in facts.versions.items()),
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
    own = [name for name in ("environment", "teacher") if info.get(f"custom_{name}")]
    again = (
        f"its {' and its '.join(own)}, given from Python, {'are' if len(own) > 1 else 'is'} not"
        if own
        else "again: `ubp2 train --config config.yaml`"
    )
    if config.preferences.imported:
        again += f"; the {config.preferences.imported:,} labels of other runs that it learned from are not (`--labels`)"
    return f"{table}\n\nEvery setting is in `config.yaml`; {again}."


def _limits(facts: Facts) -> str:
    lines = [
        f"- It was trained in simulation, on `{facts.run.config.env}` alone; elsewhere it is untested.",
        "- It does what the comparisons rewarded, which need not be what was meant; look at what it does before use.",
        "- Observations far from those of training are clipped, and the action then means little.",
    ]
    if facts.people:
        lines.append(
            "- People answered. Their names are not published; their answers only if `labels.jsonl.gz` is here."
        )
    return "\n".join(lines)


_MEANING = {
    "policy.npz": "the policy",
    "numpy_policy.py": "its loader",
    "config.yaml": "all settings of the run",
    "metrics.jsonl": "what was measured, a JSON object a line",
    "curve.png": "learning curves",
    "clip.mp4": "an episode of the policy",
    "labels.jsonl.gz": "answers to comparisons, without names",
}


def _files(files: Sequence[str]) -> str:
    return "\n".join(f"- `{name}`: {_MEANING[name]}" for name in files)
