"""What each prior of model_inversion reads of the same messages: MNIST in quarters, four parties, by defense.

    python scripts/inversion_priors.py --path MNIST --seeds 3

Each run is trained once (8,000 pictures, 3 epochs, batches of 64, model=cnn) and attacked in four ways: with total
variation, with what test rows say (prior=pca and prior=auxiliary), and as a black box. The attacker knows how embeddings are
compressed and the mean of noise unless a line says otherwise. Prints a Markdown table: bits a row, test accuracy, and MSE,
SSIM and the share recognised of each, with the guesses below. Means over the seeds, with Student's 95 % intervals of MSE
from three seeds on. A run takes a minute of one core.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from vflbench import train
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import interval_text, over_runs
from vflbench.report.inversion import GUESSES, bits_per_row, rebuilt
from vflbench.results.runs import read_run

FIGURES = ("mse", "ssim", "recognised")
ATTACKS = {
    "total variation": {"knows_compression": True, "knows_noise_mean": True},
    "pca": {"prior": "pca", "knows_noise_mean": True},
    "auxiliary": {"prior": "auxiliary", "knows_compression": True, "knows_noise_mean": True},
    "black box": {"mode": "black_box"},
}
UNAWARE: dict[str, dict[str, Any]] = {"knows nothing of the defense": {}}
NOISE = ["model.cut_width=64", "defense=[quantize,binomial]", "defense.binomial.biased=true"]
SETTINGS: dict[str, tuple[list[str], dict[str, dict[str, Any]]]] = {
    "64 numbers": (["model.cut_width=64"], {}),
    "256 levels": (["model.cut_width=64", "defense=quantize", "defense.quantize.levels=256"], {}),
    "16 levels": (["model.cut_width=64", "defense=quantize", "defense.quantize.levels=16"], {}),
    "4 levels": (["model.cut_width=64", "defense=quantize", "defense.quantize.levels=4"], {}),
    "2 levels": (["model.cut_width=64", "defense=quantize", "defense.quantize.levels=2"], UNAWARE),
    "top_k, half": (["model.cut_width=64", "defense=top_k", "defense.top_k.fraction=0.5"], {}),
    "top_k, 12 %": (["model.cut_width=64", "defense=top_k", "defense.top_k.fraction=0.12"], {}),
    "16 levels + Bin(64, 0.5)": ([*NOISE, "defense.binomial.n=64"], UNAWARE),
    "2 levels + Bin(8000, 0.5), 8 numbers": (
        [
            *NOISE,
            "model.cut_width=8",  # after that of NOISE, which it replaces
            "defense.quantize.levels=2",
            "defense.quantize.range=[0,1]",
            "defense.binomial.n=8000",
        ],
        {},
    ),
    "2 layers": ([], {}),
    "3 layers": (["model.bottom_layers=3"], {}),
    "5 layers": (["model.bottom_layers=5"], {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="the folder of MNIST")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rows", type=int, default=64, help="pictures rebuilt, of one batch")
    parser.add_argument("--only", choices=SETTINGS, action="append", help="of the lines; may be given several times")
    options = parser.parse_args()
    print("| | attack | runs | bits a row | test accuracy | MSE | SSIM | recognised |\n|" + "---|" * 8, flush=True)
    for name in options.only or SETTINGS:
        overrides, more = SETTINGS[name]
        with tempfile.TemporaryDirectory() as place:
            seeds = range(options.first, options.first + options.seeds)
            runs = [read_run(_trained(Path(place), options, overrides, ATTACKS | more, seed)) for seed in seeds]
            for attack, guess in [*((attack, None) for attack in ATTACKS | more), *(("pca", guess) for guess in GUESSES)]:
                key = attack.replace(" ", "_")
                found = {f: over_runs((rebuilt(run, key, f, guess) for run in runs), range_of(f)) for f in FIGURES}
                bits = sum(map(bits_per_row, runs)) / len(runs)
                accuracy = sum(run.summary["test_accuracy"] for run in runs) / len(runs)
                mse = interval_text(found["mse"], ".4f")
                cells = [name, guess or attack, len(runs), f"{bits:.0f}", f"{accuracy:.3f}", mse]
                cells += [f"{found[f].mean:.2f}" for f in FIGURES[1:]]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _trained(
    place: Path, options: argparse.Namespace, overrides: list[str], attacks: dict[str, dict[str, Any]], seed: int
) -> Path:
    target = "vflbench.attacks.model_inversion.ModelInversion"
    chosen = []
    for name, values in attacks.items():
        given = ",".join(f"{key}:{str(value).lower()}" for key, value in {"rows": options.rows, **values}.items())
        chosen.append(f"+attack.{name.replace(' ', '_')}={{_target_:{target},{given}}}")
    path = [f"dataset.path={options.path}"] if options.path else []
    return train(
        "dataset=mnist",
        "dataset.parties=4",
        "dataset.rows=8000",
        *path,
        "model=cnn",
        "epochs=3",
        "batch_size=64",
        "audit.batches=1",
        "audit.epochs=last",
        "audit.probe=false",
        "attack=none",
        *chosen,
        *overrides,
        f"seed={seed}",
        f"hydra.run.dir={place / str(seed)}",
    )


if __name__ == "__main__":
    main()
