"""Where published weights lie: a path of the user's, the cache of the Hugging Face Hub, or the Hub itself."""

from __future__ import annotations

from pathlib import Path

from ubp2.errors import UserError
from ubp2.vision.weights import FILE

__all__ = ["PREFIX", "find"]

PREFIX = "hub:"
OWNER = "facebook"


def find(name: str, given: str | None) -> Path:
    """The weights of a published encoder; nothing is downloaded unless `given` says so, with hub:facebook/<name>."""
    if given is None:
        cached = _cached(f"{OWNER}/{name}")
        if cached is None:
            raise UserError(f"{name} needs its published weights, and visual.weights names none. {_where(name)}")
        return cached
    if not given.startswith(PREFIX):
        return Path(given).expanduser()
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise UserError(
            "weights of the Hub need huggingface_hub; install it with: pip install 'ubp2[visual]'"
        ) from None
    try:
        return Path(hf_hub_download(given.removeprefix(PREFIX), FILE))
    except Exception as error:  # the network, the address and the Hub fail in many ways
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{given} cannot be downloaded ({reason.rstrip('.')}). {_where(name)}") from None


def _cached(repository: str) -> Path | None:
    """The file in the Hub's own cache, if somebody has downloaded it before."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    path = try_to_load_from_cache(repository, FILE)
    return Path(path) if isinstance(path, str) else None


def _where(name: str) -> str:
    return (
        f"With a network: --visual.weights {PREFIX}{OWNER}/{name}. Without: download "
        f"https://huggingface.co/{OWNER}/{name}/resolve/main/{FILE} elsewhere and point to it with --visual.weights "
        f"FILE. Without any weights: --visual.encoder conv, which is trained on the environment's own frames, "
        f"random-conv, or a function of your own, module:function"
    )
