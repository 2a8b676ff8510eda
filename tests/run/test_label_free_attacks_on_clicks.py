"""Attacks without labels on real clicks: what the gradients of an undefended model tell, also where they are summed."""

import pytest
from builders import run_in

from vflbench.attacks.batch_inference import BatchInference
from vflbench.attacks.direct import Direct
from vflbench.attacks.exploit import Exploit
from vflbench.attacks.norm import Norm
from vflbench.data.clicklogs import Criteo
from vflbench.defenses.label_dp import LabelDp
from vflbench.models.optimizers.adam import Adam
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

pytestmark = [pytest.mark.data, pytest.mark.slow]
ATTACKS = {"norm": Norm, "direct": Direct, "exploit": Exploit, "batch_inference": BatchInference}


def leaks(folder, data_folder, parties=1, **changes):
    """Attack -> the lowest leak AUC at the cut layer of any party."""
    path = str(data_folder / "criteo" / "train.txt.gz")
    summary = run_in(
        folder,
        dataset=Criteo(path=path, min_count=5, numeric_transform="log", parties=parties),
        model=WideDeep(),
        optimizer=Adam(),
        settings=Settings(audit=Audit()),
        attacks={name: attack() for name, attack in ATTACKS.items()},
        **changes,
    )
    return summary["leak_auc_two_sided"]


def test_all_but_the_norm_read_every_label_of_an_undefended_model(tmp_path, data_folder):
    read = leaks(tmp_path / "run", data_folder)
    for attack in ("direct", "exploit", "batch_inference"):
        assert read[attack]["gradient"]["f5"] > 0.999, attack
    assert read["norm"]["gradient"]["f5"] < 0.95


def test_label_dp_is_read_from_the_message_and_the_prediction_together(tmp_path, data_folder):
    read = leaks(tmp_path / "run", data_folder, defenses={"label_dp": LabelDp()})
    assert read["exploit"]["gradient"]["f5"] > read["direct"]["gradient"]["f5"] + 0.05
