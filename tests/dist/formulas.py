"""What a strategy must cost, from the model's shape alone: the parameters of its units, padded as they are in memory,
the bytes of model state and the bytes sent. Written from the formulas, not from the program."""

ALIGNMENT = 32  # elements: where a parameter begins in its unit, and what a rank's part of a unit is a multiple of
WIDE = 4        # bytes of gradients and moments
MASTERS = {"fp32": 0, "bf16": 2, "fp16": 4}  # bytes beside a weight: a bf16 one is half of its master
STATS = 64                                   # bytes: statistics of the loss, in a cache line of their own
SCALER = {"fp32": 0, "bf16": 0, "fp16": 64}  # the loss scale likewise


def round_up(value, step):
    return -(-value // step) * step


def storage_bytes(precision):
    return 4 if precision == "fp32" else 2


def unit_params(model):
    """[(unit, elements of each of its parameters)]: what lies before the blocks, each block, what lies after them."""
    d, vocab = model["width"], model["vocab"]
    kv_heads = model.get("kv_heads", model["heads"])
    qkv = (model["heads"] + 2 * kv_heads) * (d // model["heads"])
    if model["family"] == "gpt2":
        ffn = model.get("ffn", 4 * d)
        first = [vocab * d, model["context"] * d]
        block = [d, d, qkv * d, qkv, d * d, d, d, d, ffn * d, ffn, d * ffn, d]
        last = [d, d]
    else:
        ffn = model["ffn"]
        first = [vocab * d]
        block = [d, qkv * d, d * d, d, 2 * ffn * d, d * ffn]
        last = [d]
    if not model["tied"]:
        last.append(vocab * d)
    return [("first", first), *((f"blocks.{i}", block) for i in range(model["layers"])), ("last", last)]


def num_params(model):
    return sum(sum(params) for _, params in unit_params(model))


def unit_elems(model, data):
    """{unit: elements with padding}, where the data axis has so many ranks."""
    return {name: round_up(sum(round_up(elems, ALIGNMENT) for elems in params), ALIGNMENT * data)
            for name, params in unit_params(model)}


def model_state(strategy, params, data, precision, once=False):
    """Bytes of weights, master weights, gradients, moments and what the loss needs on a rank of the data axis, of
    `params` elements."""
    weights = storage_bytes(precision)
    optimizer = MASTERS[precision] + 2 * WIDE
    part = params / data
    # Each pass leaves the sum of a part; what is reduced once a step adds up whole.
    gradients = (params if once else part) * WIDE
    return STATS + SCALER[precision] + gradients + {
        "ddp": params * (weights + optimizer),
        "zero1": params * weights + part * optimizer,
        "zero2": params * weights + part * optimizer,
        "fsdp": part * (weights + optimizer),
    }[strategy]


def sent_on_data_axis(strategy, model, data, precision, passes, sync="pass", reduce="fp32"):
    """Bytes a rank sends in a step of so many passes: gradients go out once a pass, or once a step."""
    units = unit_elems(model, data)
    everything = sum(units.values())
    blocks = sum(elems for name, elems in units.items() if name.startswith("blocks."))
    reduced = (passes if sync == "pass" else 1) * everything * storage_bytes(reduce)
    gathered = {
        "ddp": everything * WIDE,  # the sum of the gradients
        "zero1": everything * storage_bytes(precision),
        "zero2": everything * storage_bytes(precision),
        # In forward and again in backward; what lies outside blocks stays in between.
        "fsdp": passes * (everything + blocks) * storage_bytes(precision),
    }[strategy]
    return (reduced + gathered) * (data - 1) // data


def sent_on_world(model, world):
    """The square of each parameter's gradient, whether all are finite, and three statistics, in fp64, all-reduced."""
    numbers = sum(len(params) for _, params in unit_params(model)) + 4
    return 2 * (world - 1) * round_up(numbers, world) // world * 8


def sent_on_tensor_axis(model, tensor, precision, micro_batch, passes, partial="fp32"):
    """With the rows of the residual stream split: what four all-reduces a block would send, as gathers and scatters."""
    d, rows = model["width"], micro_batch * model["context"]
    elems = rows * d * (tensor - 1) // tensor
    gather = elems * storage_bytes(precision)
    scatter = elems * WIDE if partial == "fp32" else gather  # of partial sums
    # Forward and backward of the embedding, whose partial sums are exact as they are, and of the head.
    around_blocks = 3 * gather + scatter
    loss = (tensor - 1) * rows * 4 * WIDE     # four numbers a row
    norms = 2 if model["family"] == "gpt2" else 1  # gain and bias, or gain
    summed = (2 * model["layers"] + 1) * norms * round_up(d, ALIGNMENT) * WIDE  # each sees its own rows only
    a_pass = model["layers"] * 4 * (gather + scatter) + around_blocks + loss
    return passes * a_pass + 2 * summed * (tensor - 1) // tensor


def sent_on_pipeline_axis(model, stages, stage, precision, micro_batch, passes, chunks=1, tensor=1):
    """The residual stream to the next stage, its gradient to the one before; both ends add up a shared table."""
    boundary = micro_batch * model["context"] * model["width"] * storage_bytes(precision) // tensor
    parts = [stage + chunk * stages for chunk in range(chunks)]
    crossings = sum((part < stages * chunks - 1) + (part > 0) for part in parts)
    at_an_end = stage in (0, stages - 1) and model["tied"]
    table = model["vocab"] * model["width"] // tensor * WIDE if at_an_end else 0
    return passes * crossings * boundary + table
