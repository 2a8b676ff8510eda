"""What defenses of gradients leave to attackers without labels, on 27,000 training rows of Criteo."""

import pytest
from builders import run_in

from vflbench.attacks.alignment import Alignment
from vflbench.attacks.mixture import Mixture
from vflbench.attacks.posterior import Posterior
from vflbench.attacks.remainder import Remainder
from vflbench.attacks.residual import Residual
from vflbench.data.clicklogs import Criteo
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.max_norm import MaxNorm
from vflbench.models.optimizers.adam import Adam
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.mark.parametrize(
    ("defense", "attack", "least"),
    [
        ({"marvell": Marvell(sumkl=0.16)}, {"remainder": Remainder()}, 0.99),
        ({"marvell": Marvell(sumkl=0.01)}, {"remainder": Remainder()}, 0.99),
        ({"max_norm": MaxNorm()}, {"alignment": Alignment()}, 0.74),
        ({"max_norm": MaxNorm()}, {"posterior": Posterior()}, 0.88),
        ({"gaussian": Gaussian(ratio=4.0)}, {"mixture": Mixture()}, 0.88),
        ({"label_dp": LabelDp(eps=1.0)}, {"residual": Residual()}, 0.75),
        ({}, {"mixture": Mixture()}, 0.999),
    ],
    ids=lambda value: "+".join(value) or "none" if isinstance(value, dict) else None,
)
def test_no_label_is_needed(tmp_path, data_folder, defense, attack, least):
    dataset = Criteo(path=str(data_folder / "criteo" / "train.txt.gz"), rows=30_000, min_count=5, numeric_transform="log")
    audit = Audit(batches=20, canaries=0) if "label_dp" in defense else Audit(batches=20)
    summary = run_in(
        tmp_path / "run",
        dataset=dataset,
        model=WideDeep(),
        optimizer=Adam(),
        settings=Settings(audit=audit),
        defenses=defense,
        attacks=attack,
    )
    name = next(iter(attack))
    assert summary["leak_auc"][name]["gradient"]["f5"] >= least
