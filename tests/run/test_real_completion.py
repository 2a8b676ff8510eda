"""What completion reads on real clicks, with 100 rows whose labels are known."""

import pytest
from builders import run_in

from vflbench.attacks.completion import Completion
from vflbench.data.clicklogs import Criteo
from vflbench.defenses.dcor import Dcor
from vflbench.models.optimizers.adam import Adam
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.mark.parametrize("alpha_d", [0.005, 0.02])
def test_dcor_leaves_the_embeddings_as_telling_as_the_model_itself(tmp_path, data_folder, alpha_d):
    clicks = Criteo(path=str(data_folder / "criteo" / "train.txt.gz"), min_count=5, numeric_transform="log", sample=0.3)
    summary = run_in(
        tmp_path / "run",
        dataset=clicks,
        model=WideDeep(),
        optimizer=Adam(),
        settings=Settings(audit=Audit()),
        attacks={"completion": Completion(known=100)},
        defenses={"dcor": Dcor(alpha_d=alpha_d)},
    )
    assert summary["leak_auc_two_sided"]["completion"]["embedding"]["f5"] > summary["train_auc"] - 0.03
