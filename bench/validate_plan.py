#!/usr/bin/env python3
"""Holds `tandem plan --cluster` against training runs that were measured.

validate_plan.py FILE.csv [--factors FILE] [--fit-factors OUT] [--held-out] [--tandem PROGRAM] [--rows TEXT] [--all]

Every row of FILE.csv becomes a config, is compiled and simulated, and compared: predicted, measured, error; then a
summary by source, GPU and fit. Two formats are read: validation.csv (published runs) and validation_one_node.csv.
Other programs are slower or faster than Tandem on the same GPU, so that a run of theirs is compared after a factor of
its framework and GPU, from --factors; --fit-factors writes the factors that make the median ratio of each one.
--held-out fits factors to half of the models of each framework and GPU, and compares only the other half, then the
other way round: what is printed was never fitted to.
"""

import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

# How other programs run a step, as ratios to Tandem's kernels. Eager PyTorch moves the bytes between products about three
# times as often. Megatron's attention before 2023 wrote its scores to memory; flash attention of 2023 was made for Ampere
# and reached about a third of what kernels for Hopper do. issue_us: CPU time for what is one command of Tandem's, which
# bounds small layers. They were chosen by looking at the tables, the same for all rows; compute_factor is
# fitted by --fit-factors, one for each framework and GPU.
EAGER_MEGATRON = {"fused_attention": 0, "issue_us": 145, "launch_us": 0, "reduces_once": 1}
SOFTWARE = {
    "Tandem": {},
    "Megatron-DeepSpeed": EAGER_MEGATRON,
    "Megatron-LM": EAGER_MEGATRON,
    "llm-foundry FSDP1": {"issue_us": 30, "launch_us": 0, "attention_factor": 1.4, "pointwise_factor": 2.8},
    "torchtitan FSDP2": {"issue_us": 30, "launch_us": 0},
}
ON_HOPPER = {"llm-foundry FSDP1": {"attention_factor": 2.9}}
MEGATRON_VOCABULARY = 128  # times the tensor axis: what Megatron pads vocabularies to


COLUMNS = {"id", "framework", "source", "family", "layers", "width", "heads", "kv_heads", "ffn", "vocab", "seq", "gpu", "gpus",
           "gpus_per_node", "inter_node_gbps", "dp", "tp", "pp", "data_strategy", "micro_batch", "global_batch", "precision",
           "recompute", "tokens_s_gpu", "step_time_s", "fit", "quality"}
ONE_NODE_COLUMNS = {"id", "gpus", "global_batch", "micro_batch", "width", "heads", "layers", "seq", "tp", "dp", "pp", "step_time_ms",
                    "vocab", "recompute", "precision"}


class Skip(Exception):
    """The row says something that no config can."""


def whole(text, default=1):
    if text in ("", None):
        return default
    number = positive(text)
    if number != int(number):
        raise Skip(f"'{text}' is no whole number")
    return int(number)


def positive(text):
    try:
        number = float(text)
    except ValueError:
        raise Skip(f"'{text}' is no number") from None
    if not 0 < number < math.inf:
        raise Skip(f"'{text}' is no number above 0")
    return number


def gcd_batch(batch, micro, data):
    if batch % (micro * data):
        raise Skip(f"a batch of {batch} is not {data} ranks of {micro}")
    return batch


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def row_of_one_node(row):
    """A row of validation_one_node.csv in the columns of validation.csv."""
    return {"id": row["id"], "source": "vTrain, one node", "group": f"{row['width']}-{row['layers']}-{row['global_batch']}-{row['gpus']}",
            "framework": "Megatron-DeepSpeed", "family": "gpt2",
            "layers": row["layers"], "width": row["width"], "heads": row["heads"], "kv_heads": row["heads"],
            "ffn": str(4 * float(row["width"])) if is_number(row["width"]) else row["width"], "vocab": row["vocab"], "seq": row["seq"], "gpu": "A100-80-SXM", "gpus": row["gpus"],
            "gpus_per_node": "8", "inter_node_gbps": "", "dp": row["dp"], "tp": row["tp"], "pp": row["pp"], "vpp": "1", "cp": "1",
            "ep": "1", "data_strategy": "ddp", "micro_batch": row["micro_batch"], "global_batch": row["global_batch"],
            "precision": row["precision"], "recompute": (row["recompute"].split() or [""])[0], "tokens_s_gpu": "",
            "step_time_s": str(float(row["step_time_ms"]) / 1e3) if is_number(row["step_time_ms"]) else row["step_time_ms"], "fit": "exact", "quality": "A"}


def config_of(row):
    """The keys of a row's config."""
    data, tensor, pipeline = whole(row["dp"]), whole(row["tp"]), whole(row["pp"])
    if whole(row.get("cp")) > 1 or whole(row.get("ep")) > 1:
        raise Skip("a context or expert axis")
    batch, micro = whole(row["global_batch"]), whole(row["micro_batch"])
    gcd_batch(batch, micro, data)
    vocabulary = whole(row["vocab"])
    if tensor > 1:
        unit = MEGATRON_VOCABULARY * tensor
        vocabulary = -(-vocabulary // unit) * unit
    strategy = (row["data_strategy"].split() or [""])[0].rstrip("?")
    strategy = {"none": "ddp", "single": "single", "hsdp": "fsdp", "": "ddp"}.get(strategy, strategy)
    if data * tensor * pipeline == 1:
        strategy = "single"
    recompute = row["recompute"].split()[0] if row["recompute"] else "none"
    if row["recompute"] == "selective every 2nd layer":
        recompute = "every:2"
    chunks = whole(row.get("vpp"))
    model = {"family": row["family"], "layers": whole(row["layers"]), "width": whole(row["width"]), "heads": whole(row["heads"]),
             "context": whole(row["seq"]), "vocab": vocabulary, "ffn": whole(row["ffn"])}
    if row["family"] == "llama":
        model["kv_heads"] = whole(row["kv_heads"], whole(row["heads"]))
    parallel = {"strategy": strategy, "data": data, "tensor": tensor, "pipeline": pipeline,
                "partial": "stored"}
    if pipeline > 1:
        parallel |= {"schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks}
    if strategy in ("ddp", "zero1") and pipeline == 1:
        parallel["sync"] = "step"
    return {"name": "row", "device": "cuda", "model": model, "parallel": parallel,
            "train": {"batch": batch, "micro_batch": micro, "steps": 10},
            "precision": {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}.get((row["precision"].split() or [""])[0], "bf16"),
            "memory": {"recompute": recompute}}


def cluster_of(row, factors):
    cluster = {"gpu": row["gpu"], "gpus": whole(row["gpus"]), "gpus_per_node": whole(row["gpus_per_node"], 8)}
    if row["inter_node_gbps"]:
        cluster["network_gbps"] = positive(row["inter_node_gbps"])
    cluster |= SOFTWARE.get(row["framework"], {})
    if row["gpu"].startswith(("H100", "H200")):
        cluster |= ON_HOPPER.get(row["framework"], {})
    cluster["compute_factor"] = factor_of(row, factors)
    return cluster


def factor_of(row, factors):
    """Of a framework that was not fitted on this GPU, what it has on others; else what others have on it."""
    key = factor_key(row)
    if key in factors:
        return factors[key]
    alike = ([value for name, value in factors.items() if name.split(" on ")[0] == row["framework"]] or
             [value for name, value in factors.items() if name.split(" on ")[-1] == row["gpu"]])
    return statistics.median(alike) if alike else 1.0


def factor_key(row):
    return f"{row['framework']} on {row['gpu']}"


def measured_seconds(row):
    if row["step_time_s"]:
        return positive(row["step_time_s"])
    tokens = whole(row["global_batch"]) * whole(row["seq"])
    return tokens / (positive(row["tokens_s_gpu"]) * whole(row["gpus"]))


def predict(tandem, row, factors):
    """(predicted plan, None), or (None, why not)."""
    with tempfile.TemporaryDirectory() as folder:
        config, cluster = pathlib.Path(folder) / "c.yaml", pathlib.Path(folder) / "k.yaml"
        try:
            measured_seconds(row)
            config.write_text(json.dumps(config_of(row)))
            cluster.write_text(json.dumps(cluster_of(row, factors)))
        except Skip as reason:
            return None, str(reason)
        done = subprocess.run([tandem, "plan", config.name, "--cluster", cluster.name, "--json"], cwd=folder, capture_output=True,
                              text=True)
        if not done.stdout:
            return None, (done.stderr.strip().splitlines() or ["no output"])[-1]
        return json.loads(done.stdout), None


def summary(name, errors):
    ordered = sorted(errors)
    near = sum(error <= 0.20 for error in ordered) / len(ordered)
    print(f"  {name:<58} {len(ordered):4d} rows  median {100 * statistics.median(ordered):5.1f} %  mean {100 * statistics.mean(ordered):5.1f} %"
          f"  within 20 %: {100 * near:5.1f} %")


def kendall(pairs):
    agree = total = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            if b != d:
                total += 1
                agree += 1 if (a - c) * (b - d) > 0 else -1
    return agree / total if total else None


def rank_groups(done):
    """Over groups of one model in many meshes: do plans order them as the measurements do, and what would they choose?"""
    groups = {}
    for row, plan, measured in done:
        same_work = (row.get("group") or row["id"], row["gpus"], row["global_batch"], row["seq"])
        groups.setdefault(same_work, []).append((plan["step_s"], measured))
    taus, losses = [], []
    for pairs in groups.values():
        if len(pairs) < 4:
            continue
        tau = kendall(pairs)
        if tau is not None:
            taus.append(tau)
            losses.append(min(pairs)[1] / min(measured for _, measured in pairs) - 1)
    if taus:
        print(f"\n  {len(taus)} groups of four meshes or more: mean Kendall tau {statistics.mean(taus):.2f}, "
              f"the mesh that would be chosen is {100 * statistics.mean(losses):.1f} % slower than the best on average, {100 * max(losses):.1f} % at most")


def fitted(done, factors):
    """Factors of computation with which the median ratio of each framework and GPU is 1, as far as computation goes."""
    ratios = {}
    for row, plan, measured in done:
        compute = plan["time"]["compute"]
        other = plan["step_s"] - compute
        if compute > 0 and measured > other:
            ratios.setdefault(factor_key(row), []).append((measured - other) / compute)
    return {key: factors.get(key, 1.0) * statistics.median(values) for key, values in ratios.items()}


def read_rows(path, wanted):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot read: {error}")
    of_one_node = bool(rows) and "step_time_ms" in rows[0]
    missing = (ONE_NODE_COLUMNS if of_one_node else COLUMNS) - set(rows[0] if rows else ())
    if missing:
        sys.exit(f"{path}: has no {', '.join(sorted(missing))}; expected the columns of validation.csv or validation_one_node.csv")
    if of_one_node:
        rows = [row_of_one_node(row) for row in rows]
    if wanted:
        rows = [row for row in rows if re.search(wanted, " ".join(row[key] for key in ("id", "framework", "gpu", "source")))]
    return rows


def plan_rows(args, rows, factors):
    """[(row, plan, measured seconds)], and the rows that could not be planned, by why not."""
    done, skipped = [], {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row, (plan, why) in zip(rows, pool.map(lambda row: predict(args.tandem, row, factors), rows)):
            if plan is None:
                skipped.setdefault(re.sub(r"\d+(\.\d+)?", "N", why.removeprefix("tandem: error: ")), []).append(row["id"])
            else:
                done.append((row, plan, measured_seconds(row)))
    return done, skipped


def held_out(args, rows):
    """Each half with factors of the other: models take turns within their framework and GPU."""
    models, halves = {}, ([], [])
    for row in rows:
        of_key = models.setdefault(factor_key(row), {})
        model = (row["layers"], row["width"])
        halves[of_key.setdefault(model, len(of_key) % 2)].append(row)
    done, skipped = [], {}
    for mine, other in (halves, halves[::-1]):
        plain, _ = plan_rows(args, other, {})
        factors = fitted(plain, {})
        factors = fitted(plan_rows(args, other, factors)[0], factors)  # overlap makes it not quite linear
        mine = [row for row in mine if factor_key(row) in factors]
        found, refused = plan_rows(args, mine, factors)
        done += found
        skipped |= refused
    return done, skipped


def print_row(row, plan, measured):
    parts = " ".join(f"{key} {100 * value / plan['step_s']:.0f}" for key, value in plan["time"].items() if value > 0.005 * plan["step_s"])
    print(f"{row['id']:<10} {row['framework']:<20} {row['gpu']:<14} {row['gpus']:>5} d{row['dp']} t{row['tp']} p{row['pp']} m{row['micro_batch']}"
          f" predicted {plan['step_s']:9.4f} s measured {measured:9.4f} s error {100 * (plan['step_s'] / measured - 1):+6.1f} %  [{parts}]", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--factors", type=pathlib.Path, help="factors of frameworks, as --fit-factors writes them")
    parser.add_argument("--fit-factors", type=pathlib.Path, metavar="OUT")
    parser.add_argument("--held-out", action="store_true", help="compare only what the factors were not fitted to")
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--rows", help="only rows whose id, framework, GPU or source match this expression")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th row")
    parser.add_argument("--all", action="store_true", help="rows that are not exact or not of quality A, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="the summary alone")
    args = parser.parse_args()
    args.tandem = str(pathlib.Path(args.tandem).resolve())
    rows = read_rows(args.file, args.rows)
    if not args.all:
        rows = [row for row in rows if row["fit"] == "exact" and row["quality"] == "A"]
    rows = rows[:: args.every]
    factors = json.loads(args.factors.read_text()) if args.factors else {}
    done, skipped = held_out(args, rows) if args.held_out else plan_rows(args, rows, factors)
    if not args.quiet:
        for found in done:
            print_row(*found)
    if not done:
        sys.exit("no row could be planned: " + "; ".join(skipped))
    print(f"\n{args.file.name}: {len(done)} of {len(rows)} rows" + (" (factors of " + args.factors.name + ")" if factors else "") +
          (", each with factors of other models" if args.held_out else ""))
    for name, key in (("all", lambda row: "all"), ("source", lambda row: row["source"][:58]), ("GPU", lambda row: row["gpu"]),
                      ("framework", factor_key), ("fit", lambda row: row["fit"]),
                      ("nodes", lambda row: "one node" if whole(row["gpus"]) <= whole(row["gpus_per_node"], 8) else "several nodes")):
        groups = {}
        for row, plan, measured in done:
            groups.setdefault(key(row), []).append(abs(plan["step_s"] / measured - 1))
        print(f" by {name}" if name != "all" else "")
        for group, errors in sorted(groups.items()):
            summary(group, errors)
    rank_groups(done)
    for why, ids in sorted(skipped.items(), key=lambda item: -len(item[1])):
        print(f"  skipped {len(ids)}: {why} ({', '.join(ids[:4])}{', ...' if len(ids) > 4 else ''})")
    if args.fit_factors:
        args.fit_factors.write_text(json.dumps(fitted(done, factors), indent=1) + "\n")
        print(f"wrote {args.fit_factors}")
    bad = [error for row, plan, measured in done if math.isnan(error := plan["step_s"] / measured)]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
