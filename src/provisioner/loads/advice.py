"""What is said, and what to do, where engines do not fit on their card, or fit badly.

All of a model on the card, or all on the CPU, never between. The order is that of what costs least: experts of a
mixture in the host's memory, a smaller cache, a smaller context, smaller weights; then the cache, and last everything,
in the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import Attention, Placing, expert_bytes
from provisioner.loads.terms import (
    BITS,
    MIB,
    Load,
    beside_bytes,
    cache_bytes,
    lacking_bytes,
    largest_context,
    needed_bytes,
    total_of,
)
from provisioner.loads.weighing import BYTES_PER_WEIGHT, FILE_TYPES, FLOOR

SWITCH = "fit_check: warn"
IN_TURNS = "in turns: the largest counts"
"""Said of a sum in which engines that take turns count once."""
LEAST_CONTEXT = 4096
"""A context below that is not worth an advice."""
KEPT_FREE = 1024 * MIB
"""What llama.cpp leaves free of a card where it decides itself how many layers lie there (``--fit-target``)."""
LEAST_SHARE, LARGEST_SHARE = 5, 98
"""Hundredths of a card that vLLM is given, as its role's page limits ``gpu_memory_utilization`` (a test holds both)."""
GIB = 2**30
SMALLER: tuple[tuple[str, str], ...] = (("q8_0", "q8_0"), ("q8_0", "q4_0"))
"""Types of keys and values, the better first; keys of 4 bits let models lose track of what they have read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One card that cannot hold what is to lie on it: what is missing, the sum in short, and what to do."""

    message: str
    details: str
    resolution: str


@dataclass(frozen=True, slots=True)
class Advice:
    """``text`` says it; ``write`` is what to write in the service's options; ``total``: what the card then holds."""

    text: str
    write: str = ""
    total: int | None = None
    fits: bool | None = None


def advice_on(budget: Budget) -> tuple[Advice, ...]:
    """What to do about the engines of one card; nothing where its memory is not known."""
    if budget.usable is None:
        return ()
    engines: list[EngineLoads] = []
    for engine in budget.engines:
        engines += [engine] * len(engine.loads)
    has_several = len(engines) > 1
    advices: list[Advice] = []
    for engine, (name, load) in zip(engines, budget.named, strict=True):
        prefix = f"{name}: " if has_several else ""
        advices += [replace(advice, text=prefix + advice.text) for advice in _on(engine, load, budget)]
    for engine in budget.engines:
        advices += _by_own_ways(engine, budget)
    return tuple(advices)


def _by_own_ways(engine: EngineLoads, budget: Budget) -> Iterator[Advice]:
    """What an engine's own module says, where it does not fit beside the others."""
    others = budget.total_beside(engine)
    if engine.ways is None or _is_enough(budget, others + engine.total):
        return
    for way in engine.ways:
        if not way.write:
            yield Advice(f"{engine.address}: {way.text}")
            continue
        total = others + sum(map(total_of, way.loads))
        yield Advice(f"{engine.address}: {way.text}", way.write, total, _is_enough(budget, total))


def _on(engine: EngineLoads, load: Load, budget: Budget) -> Iterator[Advice]:
    """What to do about one model of an engine."""
    if engine.ways is not None or (load.told and load.uncounted):
        return  # what free words change is known of the options as they are written alone
    if load.share:
        yield from _in_share(load, budget)
        return
    if load.is_paged:
        yield from _in_pages(load, budget)
        return
    yield from _whole(load, budget)
    yield from _split(load, budget)
    yield from _floor(engine, load)
    is_too_large = budget.usable is not None and total_of(load) > budget.free_for(load)
    if is_too_large and load.weights:
        yield from _ways(engine, load, budget)


def _whole(load: Load, budget: Budget) -> Iterator[Advice]:
    """All in the card's memory is the fastest place, and needs no option; nobody knows it beside unknown loads."""
    if load.weights and not budget.missing and not budget.unknown and not load.is_split:
        yield from _fitting(load, budget)


def _fitting(load: Load, budget: Budget) -> Iterator[Advice]:
    """What to do about a model that fits, and is not split."""
    lies_there = load.cache_on_card and not load.placing.cpu_experts
    if load.adapts and not _is_enough(budget, budget.added.total + KEPT_FREE):
        text = f"left to itself the engine keeps {KEPT_FREE // MIB:,} MiB free, and would move layers to the CPU for it"
        yield Advice(text, "gpu_layers: all", budget.added.total, fits=True)
    elif lies_there:
        yield Advice("all of it lies in the card's memory, the fastest place: leave it there")
    if not lies_there:
        yield from _back_on_card(load, budget)


def _back_on_card(load: Load, budget: Budget) -> Iterator[Advice]:
    """That the experts and the cache in the host's memory would fit, too."""
    total, fits = _with(replace(load, placing=Placing(), cache_on_card=True), load, budget)
    if fits:
        yield Advice("all of it would fit: leave out cpu_moe, n_cpu_moe and kv_offload", "", total, fits)


def _split(load: Load, budget: Budget) -> Iterator[Advice]:
    """A dense model between card and CPU is slower than on either."""
    if not load.is_split:
        return
    never = "never split layers between card and CPU: each token crosses the bus, slower than either"
    total, fits = _with(_on_card(load), load, budget)
    if fits:
        yield Advice(f"{never}; all of it fits", "gpu_layers: all", total, fits)
    else:
        instead = "all of it does not fit: take another way, or gpu_layers: 0, all on the CPU"
        yield Advice(f"{never}; {instead}", "gpu_layers: 0", None, fits)


def _floor(engine: EngineLoads, load: Load) -> Iterator[Advice]:
    kind = _quantisation(engine, load)
    if kind and BYTES_PER_WEIGHT[kind] < BYTES_PER_WEIGHT[FLOOR]:
        yield Advice(f"{kind} is below {FLOOR}, the floor of quality: a smaller model at {FLOOR} is the better one")


def _ways(engine: EngineLoads, load: Load, budget: Budget) -> Iterator[Advice]:
    """What takes less of the card, in the order of what costs least."""
    whole = _on_card(load)
    yield from _experts(whole, load, budget)
    if not load.is_guessed:
        yield from _cache(whole, load, budget)
    yield from _weights(engine, whole, load, budget)
    if load.cache_on_card and not load.is_guessed:
        away = replace(whole, cache_on_card=False)
        yield from _if_it_helps(away, load, budget, "kv_offload: false", "the cache in the host's memory, slower")
    rest = budget.total_with(load, 0)
    yield Advice("last: all of it on the CPU, slow but steady", "gpu_layers: 0", rest, _is_enough(budget, rest))


def _on_card(load: Load) -> Load:
    """The same with all of its layers on the card."""
    return replace(load, placing=replace(load.placing, gpu_layers=None))


def _experts(whole: Load, load: Load, budget: Budget) -> Iterator[Advice]:
    """Only the experts that a token needs cross the bus: the one split that pays."""
    if not load.shape.experts or not expert_bytes(load.tensors):
        return
    for count in range(1, whole.count + 1):
        total, fits = _with(replace(whole, placing=Placing(None, count)), load, budget)
        if fits:
            text = f"the experts of {count} of {whole.count} layers in the host's memory"
            write = f"n_cpu_moe: {count}" if count < whole.count else "cpu_moe: true"
            yield Advice(text, write, total, fits=True)
            return
    total, _ = _with(replace(whole, placing=Placing(None, whole.count)), load, budget)
    yield Advice("all experts in the host's memory: closer, not enough alone", "cpu_moe: true", total, fits=False)


def _cache(whole: Load, load: Load, budget: Budget) -> Iterator[Advice]:
    """Smaller types of keys and values, then a smaller context."""
    keeps_values = any(isinstance(layer, Attention) and layer.values for layer in load.layers)
    for keys, values in SMALLER if keeps_values else SMALLER[:1]:
        if not _is_smaller(keys, values, load):
            continue
        smaller = replace(whole, keys=keys, values=values)
        write = f"kv_cache: {{ k: {keys}, v: {values} }}" if keeps_values else f"kv_cache: {{ k: {keys} }}"
        yield from _if_it_helps(smaller, load, budget, write, "smaller types of the cache")
        yield from _context(smaller, load, budget, f", {write}")
    yield from _context(whole, load, budget, "")


def _is_smaller(keys: str, values: str, load: Load) -> bool:
    """Whether a cache of these types takes less than the engine's, without larger keys."""
    if BITS[keys] > BITS[load.keys]:
        return False
    return BITS[keys] + BITS[values] < BITS[load.keys] + BITS[load.values]


def _context(changed: Load, load: Load, budget: Budget, beside: str) -> Iterator[Advice]:
    largest = largest_context(changed, budget.free_for(load))
    if LEAST_CONTEXT <= largest < load.context:
        total, fits = _with(replace(changed, context=largest), load, budget)
        yield Advice("the largest context that fits", f"context: {largest}{beside}", total, fits)


def _weights(engine: EngineLoads, whole: Load, load: Load, budget: Budget) -> Iterator[Advice]:
    kind = _quantisation(engine, load)
    beats = "a smaller one all on the card beats a larger one that is split"
    if not kind:
        yield Advice(f"a smaller model, or {FLOOR}; {beats}")
        return
    share = BYTES_PER_WEIGHT[FLOOR] / BYTES_PER_WEIGHT[kind]
    if share >= 1:
        yield Advice(f"a smaller model at {FLOOR}: below that quality breaks; {beats}")
        return
    total = budget.total_with(load, total_of(whole) - round((1 - share) * load.weights))
    text = f"the same model at {FLOOR}, about {round(share * load.weights) // MIB:,} MiB"
    yield Advice(text, "", total, _is_enough(budget, total))


def _if_it_helps(changed: Load, load: Load, budget: Budget, write: str, text: str) -> Iterator[Advice]:
    total, fits = _with(changed, load, budget)
    if total < budget.added.total:
        yield Advice(text, write, total, fits)


def _with(changed: Load, load: Load, budget: Budget) -> tuple[int, bool]:
    """What lies on the card with ``changed`` in place of ``load``, and whether that fits."""
    total = budget.total_with(load, total_of(changed))
    return total, _is_enough(budget, total)


def _is_enough(budget: Budget, total: int) -> bool:
    """Whether so many bytes are usable on the card."""
    return total <= (budget.usable or 0)


def _in_pages(load: Load, budget: Budget) -> Iterator[Advice]:
    """What to write where an engine whose requests share pages does not fit: the better types of the cache first."""
    if total_of(load) <= budget.free_for(load):
        return
    if not load.is_guessed:
        for keys, values, write in load.smaller:
            smaller = replace(load, keys=keys, values=values)
            if not _is_smaller(keys, values, load):
                continue
            yield from _if_it_helps(smaller, load, budget, write, "smaller types of the cache")
            yield from _fewer_pages(smaller, load, budget, f", {write}")
        yield from _fewer_pages(load, load, budget, "")
        one = replace(load, slots=1)
        yield from _if_it_helps(one, load, budget, "max_batch_size: 1", "the state of one request at a time")
    yield Advice("a smaller model, or the same one of fewer bits")


def _fewer_pages(changed: Load, load: Load, budget: Budget, beside: str) -> Iterator[Advice]:
    """The largest cache that fits, where that is smaller than what is asked for."""
    largest = largest_context(changed, budget.free_for(load))
    if LEAST_CONTEXT <= largest < load.context:
        total, fits = _with(replace(changed, context=largest), load, budget)
        write = f"max_seq_len: {largest}, cache_size: {largest}{beside}"
        yield Advice("the largest cache that fits", write, total, fits)


def _in_share(load: Load, budget: Budget) -> Iterator[Advice]:
    """What to write where an engine that takes a share of the card does not fit, or its model not into its share."""
    lacking = needed_bytes(load) - min(load.share, budget.free_for(load) - beside_bytes(load))
    if total_of(load) <= budget.free_for(load) and lacking <= 0:
        return
    yield from _other_share(load, budget)
    yield from _fewer_requests(load, budget)
    if lacking <= 0:
        return
    if not load.is_guessed:
        yield from _packed_cache(load, budget)
        yield from _shorter(load, load, budget, "")
    offloaded = load.offloaded + -(-lacking // GIB) * GIB
    if load.card and offloaded < load.weights:
        text = "so many GiB of the weights in the container's memory: slower at every token"
        yield _changed(replace(load, offloaded=offloaded), load, budget, f"cpu_offload: {offloaded // GIB}", text)
    yield Advice("a smaller model, or the same one quantised (AWQ, GPTQ, FP8)")


def _fewer_requests(load: Load, budget: Budget) -> Iterator[Advice]:
    """Half as many requests at once, or half of that and so on, where that alone is enough."""
    for requests, buffers in load.fewer:
        share = load.share if load.card else load.share - load.buffers + buffers
        changed = replace(load, buffers=buffers, share=share)
        advice = _changed(changed, load, budget, f"max_num_seqs: {requests}", "fewer requests at once")
        if advice.fits:
            yield advice
            return


def _packed_cache(load: Load, budget: Budget) -> Iterator[Advice]:
    """A cache of numbers of one byte, with the whole context or with a shorter one."""
    if BITS[load.keys] <= BITS["fp8"]:
        return
    packed, write = replace(load, keys="fp8", values="fp8"), "kv_cache_dtype: fp8"
    yield _changed(packed, load, budget, write, "a cache of one byte a number")
    yield from _shorter(packed, load, budget, f", {write}")


def _shorter(changed: Load, load: Load, budget: Budget, beside: str) -> Iterator[Advice]:
    """The largest context that fits into the share, where that is less than what is asked for."""
    largest = largest_context(changed, budget.free_for(load))
    if LEAST_CONTEXT <= largest < load.context:
        text, write = "the largest context that fits", f"max_model_len: {largest}{beside}"
        yield _changed(replace(changed, context=largest), load, budget, write, text)


def _other_share(load: Load, budget: Budget) -> Iterator[Advice]:
    """Another share of the card: as much as the model needs, but what others leave at most."""
    if not load.card:
        yield from _other_cache(load, budget)
        return
    least = max(-(-100 * needed_bytes(load) // load.card), LEAST_SHARE)
    most = min(100 * (budget.free_for(load) - beside_bytes(load)) // load.card, LARGEST_SHARE)
    if least > most:
        return
    hundredths = least if lacking_bytes(load) else most
    text = "as much of the card as it needs" if lacking_bytes(load) else "what is left of the card"
    changed = replace(load, share=hundredths * load.card // 100)
    yield _changed(changed, load, budget, f"gpu_memory_utilization: {hundredths / 100}", text)


def _other_cache(load: Load, budget: Budget) -> Iterator[Advice]:
    """A cache of as many GiB as one request needs."""
    if load.is_guessed:
        return
    cache = cache_bytes(load)
    gib = -(-cache // GIB)
    changed = replace(load, share=needed_bytes(load) - cache + gib * GIB)
    yield _changed(changed, load, budget, f"kv_cache_gib: {gib}", "room for one request of that length")


def _changed(changed: Load, load: Load, budget: Budget, write: str, text: str) -> Advice:
    """The advice to make ``changed`` of ``load``, with what the card then holds."""
    total, fits = _with(changed, load, budget)
    return Advice(text, write, total, fits and not lacking_bytes(changed))


def _quantisation(engine: EngineLoads, load: Load) -> str:
    """The quantisation that the head of the model's file names, empty where it is not known."""
    header = engine.headers.get(load.name)
    if header is None:
        return ""
    number = header.values.get("general.file_type")
    return FILE_TYPES.get(number, "") if isinstance(number, int) else ""


def refusals(found: Iterable[Budget]) -> tuple[Refusal, ...]:
    """A refusal for each card with too little memory; a card whose memory nobody tells refuses nothing."""
    return tuple(_refusal(budget) for budget in found if budget.missing)


def mib(size: int) -> str:
    """Bytes as MiB, rounded up."""
    return f"{-(-size // MIB):,} MiB"


def share_lines(budget: Budget) -> Iterator[str]:
    """Each model that needs more than the share of the card that its engine may take, in words."""
    for name, load in budget.in_small_shares:
        needed, lacking = mib(needed_bytes(load)), mib(lacking_bytes(load))
        yield f"{name} needs {needed}, and its share of the card is {mib(load.share)}: {lacking} too much"


def contexts(budget: Budget) -> Iterator[tuple[str, int | None, int]]:
    """Each model with the largest context that fits, None where its layers are not known, and what is asked for.

    What keeps nothing of tokens, such as a model that speaks, is left out.
    """
    for name, load in budget.named:
        if not load.is_guessed and not load.has_context:
            continue
        is_known = load.told_each or not (load.is_guessed or load.uncounted)
        yield name, largest_context(load, budget.free_for(load)) if is_known else None, load.context


def _refusal(budget: Budget) -> Refusal:
    added, usable = budget.added, budget.usable or 0
    terms = ", ".join(f"{term.name} {mib(term.bytes)}" for term in added.terms)
    turns = f", {IN_TURNS}" if budget.uncounted else ""
    lines = [f"{terms}; {mib(added.total)} of {mib(usable)} that are usable{turns}"]
    lines += [*share_lines(budget), *_context_lines(budget)]
    for engine in budget.engines:
        lines += [f"guessed: {word}" for word in engine.unread]
    return Refusal(
        f"Unable to fit {budget.title}: {mib(budget.missing)} too much",
        "\n".join(lines),
        f"{_first_way(budget)}All ways: provision fit. To start it all the same, write `{SWITCH}` in the file.",
    )


def _context_lines(budget: Budget) -> Iterator[str]:
    """The largest context of each model whose layers are known."""
    for name, largest, asked in contexts(budget):
        if largest is not None:
            fitting = f"{largest:,} tokens" if largest else "none"
            yield f"largest context of {name} that fits: {fitting} (asked for {asked:,})"


def _first_way(budget: Budget) -> str:
    """The first advice with which it fits, as a sentence; empty without one."""
    for advice in advice_on(budget):
        if advice.fits and advice.write:
            return f"Write {advice.write} ({advice.text}). "
    return ""
