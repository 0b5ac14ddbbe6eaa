"""Evaluates run.py's records: tables, the requested bounds, and the check for cliffs.

FLOPs of a step: 2 per multiply-add. Forward 2*MACs; backward as much again for the weights'
gradients, and once more for the gradient of each layer's input, which the first layer does not
need. So 4*MACs for the first layer and 6*MACs for each other one, times the batch; 2*MACs without
training. Pointwise work, pooling and the update are not counted.
"""

import statistics

# MACs per example by layer: outputs times the inputs of each.
LAYERS = {
    "cnn": [26 * 26 * 32 * 3 * 3, 13 * 13 * 32 * 64, 64 * 10],
    "mlp": [784 * 512, 512 * 512, 512 * 10],
}

# Required ratio of a peer's time to ours, by model, work and program; by threads where it differs.
ASKED = {
    ("cnn", "fit", "pytorch"): {1: 7, 2: 6},
    ("cnn", "fit", "keras"): {1: 4, 2: 5},
    ("mlp", "fit", "pytorch"): 2,
    ("mlp", "fit", "keras"): 2,
    ("cnn", "predict", "pytorch"): 3,
    ("cnn", "evaluate", "pytorch"): 3,
    ("cnn", "fit", "pytorch-ddp"): 12,
    ("cnn", "fit", "tensorflow-ring"): 15,
}
CLIFF = 1.3
WHOLE = 0.9  # smallest peak of an undisturbed round, over the best one


def step_flops(model, work, batch):
    first, *others = LAYERS[model]
    if work == "fit":
        return batch * (4 * first + 6 * sum(others))
    return batch * 2 * (first + sum(others))


def asked(options, name, threads):
    bound = ASKED.get((options.model, options.work, name))
    return bound.get(threads) if isinstance(bound, dict) else bound


def expectations(times):
    """Expected step times by batch size, from the neighbouring sizes.

    Between two sizes the time is interpolated linearly. The largest size may take as long per
    example as the size below it, the smallest as long per step as the size above it. A single size
    has no expectation.
    """
    sizes = sorted(times)
    expected = {}
    for at, size in enumerate(sizes):
        below = sizes[at - 1] if at > 0 else None
        above = sizes[at + 1] if at + 1 < len(sizes) else None
        if below is not None and above is not None:
            share = (size - below) / (above - below)
            expected[size] = times[below] + share * (times[above] - times[below])
        elif below is not None:
            expected[size] = times[below] * size / below
        elif above is not None:
            expected[size] = times[above]
    return expected


def cliffs(times):
    """Time over the expectation by batch size, where there is one."""
    expected = expectations(times)
    return {size: times[size] / expected[size] for size in expected}


def disturbed(records, threads, batch):
    """Rounds disturbed by other programs: a peak, before or after the programs, is below WHOLE of
    the best."""
    peaks = [r for r in records if r["program"] == "peak" and r["threads"] == threads]
    best = max((r["gflops"] for r in peaks), default=0)
    return {r["round"] for r in peaks if r["batch"] == batch and r["gflops"] < WHOLE * best}


def counted(records, threads, batch):
    """The undisturbed rounds; all rounds if there are none."""
    rounds = {r["round"] for r in records if r["threads"] == threads and r["batch"] == batch}
    return rounds - disturbed(records, threads, batch) or rounds


def of(records, name, threads, batch):
    """The records of a program in undisturbed rounds."""
    rounds = counted(records, threads, batch)
    return [r for r in records if r["program"] == name and r["threads"] == threads
            and r["batch"] == batch and r["round"] in rounds]


def medians(records, name, threads, batch):
    """Median step time by round."""
    return {r["round"]: r["step_ms"]["median"] for r in of(records, name, threads, batch)}


def table(options, records):
    """Rows of the table, and the best peak by thread count."""
    rows, peaks = [], {}
    for threads in options.threads:
        measured = [r["gflops"] for r in records
                    if r["program"] == "peak" and r["threads"] == threads]
        peaks[threads] = max(measured, default=None)
        for batch in options.batches:
            ours = medians(records, "ours", threads, batch)
            for name in options.only:
                by_round = medians(records, name, threads, batch)
                if not by_round:
                    continue
                best = min(r["step_ms"]["min"] for r in of(records, name, threads, batch))
                row = {"threads": threads, "batch": batch, "program": name,
                       "median_ms": statistics.median(by_round.values()), "min_ms": best}
                ratios = [by_round[number] / ours[number]
                          for number in by_round if number in ours]
                if ratios:
                    row["ratio"] = {"median": statistics.median(ratios),
                                    "min": min(ratios), "max": max(ratios)}
                if peaks[threads]:
                    flops = step_flops(options.model, options.work, batch)
                    row["peak_share"] = flops / (best * 1e6) / peaks[threads]
                rows.append(row)
    return rows, peaks


def table_lines(rows):
    lines = ["| threads | batch | program | step, median ms | step, min ms "
             "| us an example (median) | time over ours (rounds) | share of peak at min |",
             "|--:|--:|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        ratio = row.get("ratio")
        ratio = f"{ratio['median']:.2f} ({ratio['min']:.2f}..{ratio['max']:.2f})" if ratio else "-"
        share = f"{row['peak_share']:.0%}" if "peak_share" in row else "-"
        lines.append(f"| {row['threads']} | {row['batch']} | {row['program']} "
                     f"| {row['median_ms']:.3f} | {row['min_ms']:.3f} "
                     f"| {1000 * row['median_ms'] / row['batch']:.1f} | {ratio} | {share} |")
    return lines


def verdict_lines(options, rows):
    """Bounds, and cliffs of ours. Cliffs are checked on minima, too, which other load affects least."""
    lines = []
    for row in rows:
        bound = asked(options, row["program"], row["threads"])
        if bound and "ratio" in row and row["batch"] == options.asked_batch:
            ratio = row["ratio"]["median"]
            lines.append(f"{row['program']} over ours, batch {row['batch']}, threads "
                         f"{row['threads']}: {ratio:.2f}, at least {bound}: "
                         f"{'met' if ratio >= bound else 'MISSED'}.")
    if len(options.batches) > 1:
        for threads in options.threads:
            for key, word in (("median_ms", "medians"), ("min_ms", "minima")):
                found = cliffs({row["batch"]: row[key] for row in rows
                                if row["program"] == "ours" and row["threads"] == threads})
                if not found:
                    continue
                worst = max(found, key=found.get)
                shown = ", ".join(f"{size}: {ratio:.2f}" for size, ratio in found.items())
                lines.append(f"ours, time over what its neighbours let expect, threads {threads}, "
                             f"{word}: {shown}; at most {CLIFF}: "
                             f"{'met' if found[worst] <= CLIFF else f'MISSED at {worst}'}.")
    return lines
