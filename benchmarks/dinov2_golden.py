"""Weights and outputs of the reference implementation of DINOv2, for tests/vision/test_dinov2.py.

    pip install torch transformers safetensors      # a CPU build of torch is enough; not needed for anything else
    python benchmarks/dinov2_golden.py tests/vision/data

Small random configurations with the heads of the published sizes: without registers, with registers, and each for the
size it was made for, a smaller image and an oblong one, so that positions are resampled both ways.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    import torch
    import transformers
    from safetensors.numpy import save_file

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "mlp_ratio": 1,
        "image_size": 70,
        "patch_size": 14,
        "attn_implementation": "eager",
    }
    models = {
        "plain": transformers.Dinov2Model(transformers.Dinov2Config(**sizes)),
        "registers": transformers.Dinov2WithRegistersModel(
            transformers.Dinov2WithRegistersConfig(**sizes, num_register_tokens=4)
        ),
    }
    rng = np.random.default_rng(0)
    for name, model in models.items():
        model.eval()
        with torch.no_grad():
            for parameter in model.parameters():  # also those that start at zero or one
                parameter.copy_((parameter + 0.3 * torch.randn_like(parameter)).half())  # small in the repository
        weights = {key: value.numpy().astype(np.float16) for key, value in model.state_dict().items()}
        save_file(weights, out / f"{name}.safetensors")
        outputs: dict[str, np.ndarray] = {}
        for height, width in ((70, 70), (42, 42), (84, 126)):
            images = rng.integers(0, 256, (1, height, width, 3), np.uint8)
            mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
            pixels = ((images / 255.0 - mean) / deviation).transpose(0, 3, 1, 2).astype(np.float32)
            with torch.no_grad():
                seen = model(torch.from_numpy(pixels)).last_hidden_state.numpy()
            outputs |= {f"images-{height}x{width}": images, f"tokens-{height}x{width}": seen.astype(np.float32)}
        np.savez_compressed(out / f"{name}.npz", **outputs)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
