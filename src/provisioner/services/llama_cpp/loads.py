"""A llama.cpp server as loads on a card, by its models' shapes and its options. Pure.

What it takes of a card is asked of llama.cpp itself, too: of ``llama-memory`` of the role's build.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.loads.engines import SMALL_CARD, EngineLoads, Question
from provisioner.loads.layers import Placing
from provisioner.loads.terms import MIB, Load, image_buffer, total_of
from provisioner.loads.weighing import (
    ARGUMENT,
    OF_AN_ARGUMENT,
    loaded_tensors,
    uncounted,
    unknown_of,
    weighed,
    words_of,
)
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.gateway_routes import CHAT
from provisioner.services.llama_cpp.builds import VULKAN
from provisioner.services.llama_cpp.options import asked_context, cache_type, kind_of, longest_text

PROGRAM = "bin/llama-memory-1"
"""Its place in what the role builds (``files/less_optimised.cmake``); another number where it answers otherwise."""
DEVICES = {"cuda": "CUDA0", "vulkan": "Vulkan0"}
"""The role's names of the one card of a container (``vars/main.yml``; a test holds both equal)."""
_UNSEEN = frozenset(
    {
        *("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
        *("--image-min-tokens", "--image-max-tokens"),
        *("--context-shift", "--cache-reuse"),
    }
)
"""Arguments of which the program says nothing: files that are loaded beside the model, images that are larger than the
one for which it makes room at its start, and caches that are moved, of which a layer's keys are unpacked for that."""
MISTOLD = frozenset({"minimax-01"})
"""Architectures that reserve less in the program than in the server, where it has several requests at a time."""
UBATCH, SMALL_UBATCH, BATCH, SMALL_BATCH = 512, 64, 2048, 128
"""What the role writes where the file leaves it open (``vars/main.yml``; a test holds both equal)."""
IMAGES_UNKNOWN = 500 * MIB
FILES_ELSEWHERE = "what these name is a file of the container, of which nothing can be read on this machine"
COST_NOTHING = frozenset(
    # how it samples, and what it answers
    "-n --predict --n-predict --keep --no-context-shift -e --escape --no-escape -r --reverse-prompt "  # noqa: SIM905
    "-sp --special --spm-infill --samplers -s --seed --sampler-seq --sampling-seq --ignore-eos --temp --temperature "
    "--top-k --top-p --min-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical --typical-p "
    "--repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base "
    "--dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay "
    "--dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file "
    "-j --json-schema -jf --json-schema-file --pooling --chat-template --chat-template-file --chat-template-kwargs "
    "--skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant --reasoning-format "
    "--reasoning-effort --reasoning-budget --reasoning-budget-message --reasoning-preserve --no-reasoning-preserve "
    # how positions are counted, and by which threads it computes
    "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
    "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -tb --threads-batch -C --cpu-mask -Cr --cpu-range "
    "--cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch "
    "--poll-batch --numa --threads-http -cb --cont-batching -nocb --no-cont-batching --warmup --no-warmup "
    "--check-tensors --perf --no-perf "
    # what lies in the host's memory alone
    "-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step -cram --cache-ram --cache-idle-slots "
    "--no-cache-idle-slots --cache-prompt --no-cache-prompt -sps --slot-prompt-similarity "
    # how it is reached, and what it writes of itself
    "--tags --reuse-port --path --api-prefix --ui --webui --no-ui --no-webui --ui-config --webui-config "
    "--ui-config-file --webui-config-file -to --timeout --sse-ping-interval --props --slot-save-path --media-path "
    "--sleep-idle-seconds --log-disable --log-file --log-jsonl --no-log-jsonl --log-prompts-dir --log-colors -v "
    "--verbose --log-verbose --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --embd-normalize".split()
)
"""Arguments of llama-server that take nothing of a card (``common/arg.cpp`` of 0.5.0, read one by one)."""


def loads_of(service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads:
    """What the server needs on its card: ``sizes`` of models in bytes, ``memory`` of the card, 0 where unknown."""
    server = _Server(service, service.options(), sizes, memory)
    largest_first = sorted(server.loads(), key=lambda load: -total_of(load))
    together = largest_first[: service.option("models_max") or None]
    # Of which nobody knows how large it is, that one may be the largest.
    unknown = "; ".join(server.unknown(largest_first))
    guesses = tuple(dict.fromkeys(server.unread(together)))
    question = server.question(together, largest_first)
    return EngineLoads(service.address, tuple(together), guesses, service.headers, unknown=unknown, question=question)


@dataclass(frozen=True, slots=True)
class _Server:
    """One server with its options as they will be."""

    service: ResolvedService
    options: Mapping[str, Any]
    sizes: Mapping[str, int]
    memory: int

    def loads(self) -> Iterator[Load]:
        """Each model that it answers with."""
        for name in self.service.model_names:
            header = self.service.headers.get(name)
            if name != self._projector and not (header and header.helps):
                yield self._load(name, header)

    def unread(self, loads: list[Load]) -> Iterator[str]:
        """What is guessed, and what stands for it."""
        for load in loads:
            yield from self._unread_of(load)
        if self._projector and self._image_buffer() is None:
            stand_in = f"{IMAGES_UNKNOWN // MIB} MiB stand for one"
            yield f"{self._projector}: how large images may be is not known; {stand_in}"

    def unknown(self, loads: list[Load]) -> Iterator[str]:
        """Yield the reasons why nobody knows what the server needs."""
        for load in loads:
            yield from unknown_of(load)
        yield from self._uncounted()

    def question(self, loads: list[Load], all_loads: list[Load]) -> Question | None:
        """Return how its own program is asked; what is left open then are variables of others, and further models."""
        options = self.options
        device = _device_of(str(options.get("backend")), str(options.get("device") or ""))
        counting = list(_counting_words(self._words, COST_NOTHING))
        variables = _counting_variables(self._variables, COST_NOTHING)
        is_mistold = any(one.architecture in MISTOLD for one in self.service.headers.values())
        if not device or self._names_files or is_mistold:
            return None
        files = {} if not self._projector else {"--mmproj": self._projector}
        left = [reason for load in all_loads if load not in loads for reason in unknown_of(load)]
        left += uncounted([word for word in self._words if word.replace("_", "-") in _UNSEEN], (), ())
        left += uncounted((), [name for name in self._variables if name not in variables], COST_NOTHING)
        return Question(
            program_of(str(options.get("source")), str(options.get("source_sha256"))),
            {load.name: self._asked_words(load, device, self._context(load.name), counting) for load in loads},
            {load.name: self._asked_words(load, device, load.context // 2, counting) for load in loads},
            {load.name: {"--model": load.name, **files} for load in loads},
            variables,
            "; ".join(left),
        )

    def _asked_words(self, load: Load, device: str, context: int, counting: Sequence[str]) -> tuple[str, ...]:
        options = {**self.options, "gpu_layers": self._written_layers()}
        batch = max(self._batch(load.name), load.ubatch)
        return (
            *(device, "--device", device, "--ctx-size", str(context)),
            *("--cache-type-k", load.keys, "--cache-type-v", load.values),
            *_words_of_options(options, batch=batch, ubatch=load.ubatch),
            *counting,
        )

    def _uncounted(self) -> Iterator[str]:
        yield from uncounted(self._words, self._variables, COST_NOTHING)
        if self._names_files:
            yield FILES_ELSEWHERE

    @property
    def _names_files(self) -> bool:
        """Whether free words name a file or a repository: it is of the container, or of nobody yet."""
        counting = _counting_words(self._words, COST_NOTHING)
        variables = _counting_variables(self._variables, COST_NOTHING)
        return any("/" in word for word in (*counting, *variables.values()))

    @property
    def _words(self) -> tuple[str, ...]:
        return tuple(map(str, self.options.get("extra_arguments") or ()))

    @property
    def _variables(self) -> Mapping[str, Any]:
        return self.options.get("environment") or {}

    def _unread_of(self, load: Load) -> Iterator[str]:
        is_split = self.options.get("cpu_moe") or load.placing != Placing()
        if not is_split:
            return
        if not load.tensors:
            yield f"{load.name}: its tensors are not known, so what stays in the host's memory is counted too"
        elif self._header(load.name).parts > 1 and sum(load.tensors.values()) < load.weights * 0.9:
            yield f"{load.name}: only the tensors of its first file are known; all others are counted"

    @property
    def _projector(self) -> str:
        """The model that turns images into tokens; empty without one."""
        return str(self.service.written.get("mmproj") or "")

    def _header(self, name: str) -> Header:
        return self.service.headers.get(name, Header(""))

    def _image_buffer(self) -> int | None:
        return image_buffer(self._header(self._projector).values) if self._projector else 0

    def _load(self, name: str, header: Header | None) -> Load:
        options = self.options
        shape, weights = weighed(header, self.sizes.get(name, 0), self.service.models[name].source)
        layers = self._written_layers()
        buffer = self._image_buffer()
        return Load(
            name,
            shape,
            weights,
            self._context(name) or shape.context,
            cache_type(self.service, "k"),
            cache_type(self.service, "v"),
            options.get("parallel") or 1,
            self._ubatch(name),
            self.sizes.get(self._projector, 0),
            IMAGES_UNKNOWN if buffer is None else buffer,
            options.get("kv_offload", True),
            unified=False,  # the role says how many slots there are, and then each has its own
            adapts=layers in (None, "auto"),
            placing=Placing(_count(layers), self._layers_with_experts(header)),
            tensors=loaded_tensors(header) if header else {},
            unpacks=options.get("backend") != VULKAN,
            outputs=self._outputs(),
            flash_attention=options.get("flash_attention") != "off",
            uncounted=words_of(list(self._uncounted()), self._words, self._variables),
        )

    def _outputs(self) -> int:
        """Of how many tokens logits are made at once: of one a request; 0 where a source's own way is not known."""
        is_pinned = "source" not in self.service.said
        if kind_of(self.service) != CHAT or not is_pinned:
            return 0
        return int(self.options.get("parallel") or 1)

    def _written_layers(self) -> Any:
        """The layers on the card: as written; with a card in the file all of them; else the role's default."""
        default = "all" if self.service.wants_card else self.options.get("gpu_layers")
        return self.service.written.get("gpu_layers", default)

    def _layers_with_experts(self, header: Header | None) -> int:
        """The layers whose experts stay in the host's memory."""
        if header and self.options.get("cpu_moe"):
            return header.layers
        return self.options.get("n_cpu_moe") or 0

    def _context(self, name: str) -> int:
        asked = asked_context(self.service, name)
        return int(self.options["context"] if asked is None else asked)

    def _batch(self, name: str) -> int:
        if kind_of(self.service) != CHAT:
            return int(self.options.get("batch") or longest_text(self.service, name))
        return int(self.options.get("batch") or (SMALL_BATCH if self._is_tight else BATCH))

    def _ubatch(self, name: str) -> int:
        if kind_of(self.service) != CHAT:
            return longest_text(self.service, name)
        usual = SMALL_UBATCH if self._is_tight else UBATCH
        return self.options.get("ubatch") or min(usual, self._batch(name))

    @property
    def _is_tight(self) -> bool:
        return bool(self._projector) and 0 < self.memory <= SMALL_CARD


def _count(layers: Any) -> int | None:
    """A number of layers; None for a word."""
    is_number = isinstance(layers, int) and not isinstance(layers, bool)
    return layers if is_number else None


def program_of(source: str, sha256: str) -> str:
    """Return the name under which the program of a source is kept: all builds of one source answer the same."""
    return f"{PROGRAM.rpartition('/')[2]}-{hashlib.sha256(f'{source} {sha256}'.encode()).hexdigest()[:16]}"


def _device_of(backend: str, device: str) -> str:
    """Return the card that the program stands in for; empty where there are several, or none."""
    name = device or DEVICES.get(backend, DEVICES["cuda"])
    return "" if "," in name else name


def _counting_words(words: Iterable[str], free: Collection[str]) -> Iterator[str]:
    """Yield the words of a command line without those arguments, and their values, that take nothing (``free``).

    Others may name files of the container, which are not on this machine.
    """
    counts = True
    for word in words:
        if ARGUMENT.match(word):
            counts = word.replace("_", "-") not in free
        if counts:
            yield word


def _counting_variables(variables: Mapping[str, Any], free: Collection[str]) -> dict[str, str]:
    """Return the variables that stand for arguments which may take something."""
    told = [name for name in variables if name.startswith(OF_AN_ARGUMENT)]
    return {name: str(variables[name]) for name in told if any(uncounted((), [name], free))}


def _words_of_options(options: Mapping[str, Any], *, batch: int, ubatch: int) -> Iterator[str]:
    """Yield the words by which the role has the server take more or less (``__llama_cpp_arguments``)."""
    yield from (
        "--parallel",
        str(options.get("parallel") or 1),
        "--batch-size",
        str(batch),
        "--ubatch-size",
        str(ubatch),
    )
    yield from ("--flash-attn", str(options.get("flash_attention") or "auto"))
    yield "--kv-offload" if options.get("kv_offload", True) else "--no-kv-offload"
    layers = options.get("gpu_layers")
    yield from ("--gpu-layers", "all" if layers in (None, "auto") else str(layers))
    for option, word in (("embedding", "--embedding"), ("rerank", "--reranking"), ("cpu_moe", "--cpu-moe")):
        if options.get(option):
            yield word
    if options.get("n_cpu_moe"):
        yield from ("--n-cpu-moe", str(options["n_cpu_moe"]))
