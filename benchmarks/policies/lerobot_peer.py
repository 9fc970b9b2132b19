# pyright: basic, reportMissingImports=false
"""LeRobot's own SmolVLA, full size, random weights, timed by stage. Runs in LeRobot's environment.

Reads the number of rows from each line of standard input, answers with a line of JSON. Started
by ``bench_smolvla.py --lerobot PYTHON``.
"""

import importlib.machinery
import json
import sys
import time
import types
from pathlib import Path
from typing import ClassVar


class _Stub(types.ModuleType):
    """Stands for packages that importing LeRobot's SmolVLA asks for and computing does not."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder:
    """Finds stubs for whatever of these is missing."""

    names = ("torchvision", "datasets", "torchcodec", "gymnasium", "av", "rerun", "wandb")

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def build(num_cameras: int):  # noqa: ANN201
    """The model as LeRobot builds it; what it would ask the hub for is answered here."""
    import transformers
    from transformers import AutoProcessor, SmolVLMForConditionalGeneration  # noqa: F401
    from transformers.models.smolvlm.configuration_smolvlm import SmolVLMConfig

    config = SmolVLMConfig(
        vision_config={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "patch_size": 16,
            "image_size": 512,
        },
        text_config={
            "model_type": "llama",
            "hidden_size": 960,
            "intermediate_size": 2560,
            "num_hidden_layers": 32,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "head_dim": 64,
            "vocab_size": 49280,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000,
            "torch_dtype": "float32",
        },
        scale_factor=4,
    )
    tokenizer = types.SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)
    answers = types.SimpleNamespace(tokenizer=tokenizer)
    transformers.AutoConfig.from_pretrained = lambda *a, **k: config  # type: ignore[assignment]
    AutoProcessor.from_pretrained = lambda *a, **k: answers  # type: ignore[assignment]
    # Only now: transformers must see that these packages are missing.
    sys.meta_path.append(_Finder())  # type: ignore[arg-type]
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import VLAFlowMatching

    images = {
        f"observation.images.camera{n}": PolicyFeature(FeatureType.VISUAL, (3, 512, 512))
        for n in range(num_cameras)
    }
    state = {"observation.state": PolicyFeature(FeatureType.STATE, (7,))}
    policy = SmolVLAConfig(
        input_features={**state, **images},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (7,))},
        device="cpu",
        load_vlm_weights=False,
    )
    return VLAFlowMatching(policy).float().eval()


def load(model, weights: Path) -> None:  # noqa: ANN001
    """Fill it from a file of LeRobot's layout, as LeRobot does."""
    from safetensors.torch import load_file

    found = load_file(weights)
    prefix = "model."
    left = model.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in found.items()}, strict=False
    )
    # The embedding's tied copy and the layers that were cut off are filled by nobody.
    if left.unexpected_keys or any("lm_head" not in name for name in left.missing_keys):
        raise SystemExit(f"not filled: {left}")


def peak_mib() -> int:
    """Most memory so far. Not getrusage: its peak is inherited from whoever started this one."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def main() -> None:
    """Build, load, say so, then answer lines."""
    answers, sys.stdout = sys.stdout, sys.stderr  # LeRobot prints; only answers go to our reader
    num_cameras, tokens, threads = (int(argument) for argument in sys.argv[1:4])
    import torch
    import transformers

    torch.set_num_threads(threads)
    start = time.perf_counter()
    model = build(num_cameras)
    load(model, Path(sys.argv[4]))
    took = time.perf_counter() - start
    ended: list[float] = []
    forward = model.vlm_with_expert.forward

    def timed(*given: object, **named: object) -> object:
        result = forward(*given, **named)
        ended.append(time.perf_counter())
        return result

    model.vlm_with_expert.forward = timed
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    facts = {"load_s": round(took, 2), "peak_mib_after_load": peak_mib(), "packages": versions}
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        rows = int(line)
        images = [torch.rand(rows, 3, 512, 512) * 2 - 1 for _ in range(num_cameras)]
        masks = [torch.ones(rows, dtype=torch.bool)] * num_cameras
        words = torch.randint(0, 300, (rows, tokens))
        ended.clear()
        with torch.inference_mode():
            start = time.perf_counter()
            model.sample_actions(
                images,
                masks,
                words,
                torch.ones_like(words, dtype=torch.bool),
                torch.randn(rows, 32),
            )
            end = time.perf_counter()
        answer = {"prefix_ms": 1e3 * (ended[0] - start), "denoise_ms": 1e3 * (end - ended[0])}
        print(json.dumps({**answer, "peak_mib": peak_mib()}), file=answers, flush=True)


if __name__ == "__main__":
    main()
