"""Audit the rounds that a run recorded: python audit_recording.py RUN/recording"""

import sys

from vflbench import audit
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral

result = audit(sys.argv[1], {"norm": Norm(), "spectral": Spectral()})
for row in result.rows():
    if row.metric == "leak_auc":
        print(row.epoch, row.attack, row.party, row.layer, repr(row.value), sep=",")
