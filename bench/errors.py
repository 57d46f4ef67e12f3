"""Error of each work against float64, as a share of eager's own error, over several seeds (weights and inputs are drawn anew).

usage: python bench/errors.py [WORK ...] [--batch N] [--dtypes float32,bfloat16] [--seeds 8]
Prints a row per work and dtype: median over the seeds of rms(ours)/rms(eager) and of max(ours)/max(eager), and the worst seed of each.
"""

import argparse
import copy
import json
import math
import statistics
import warnings

import torch
import works

import thruway


def distance(outputs, truth) -> tuple[float, float]:
    """(rms, largest) difference over all outputs."""
    differences = [(x.double() - t).flatten() for x, t in zip(outputs, truth)]
    every = torch.cat(differences)
    return math.sqrt(every.pow(2).mean().item()), every.abs().max().item()


def ratios(work: str, dtype: torch.dtype, batch: int, seed: int) -> tuple[float, float]:
    """rms and max error of one seed, relative to eager's."""
    torch.manual_seed(seed)
    fn, make = works.build(work, "cpu", dtype, batch)
    args = make(batch)
    wide = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
    wide_args = [a.double() if a.is_floating_point() else a for a in args]
    with torch.no_grad():
        truth = works.flat(wide(*wide_args))
        eager = distance(works.flat(fn(*args)), truth)
        ours = distance(works.flat(thruway.compile(fn)(*args)), truth)
    return tuple(a / b if b else float(a > 0) for a, b in zip(ours, eager))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("works", nargs="*", default=[w for w in works.WORKS if w != "decode"])
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--dtypes", default="float32,bfloat16")
    p.add_argument("--seeds", type=int, default=8)
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    for work in a.works:
        for dtype in a.dtypes.split(","):
            pairs = []
            for seed in range(a.seeds):
                pairs.append(ratios(work, getattr(torch, dtype), a.batch, seed))
                thruway.reset()
            rms, top = zip(*pairs)
            row = {"rms": statistics.median(rms), "max": statistics.median(top), "worst_rms": max(rms), "worst_max": max(top)}
            print(json.dumps({"work": work, "dtype": dtype, "batch": a.batch, "seeds": a.seeds, **{k: round(v, 3) for k, v in row.items()}}), flush=True)


main()
