import torch
from attacks.views import view_of
from torch import nn

from vflbench.attacks.fsha import Fsha
from vflbench.messages.facts import Embeddings, PeerDecoder, PeerDecoders
from vflbench.protocols.adversaries.fsha import Fsha as Cheat
from vflbench.protocols.adversaries.malicious_optimizer import MaliciousOptimizer
from vflbench.protocols.split import Split
from vflbench.run.attackers import offered_with, unmet_attacks


def decoder():
    """u = z / (2, 2, 4): numeric columns sigmoid(u_1), sigmoid(u_2); a category among the ids 3 and 7 by u_3."""
    network = nn.Linear(3, 4, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, -1], [0, 0, 1]]))
    return PeerDecoder(network, ("f1", "wide"), torch.tensor([2.0, 2.0, 4.0]), 2, (torch.tensor([3, 7]),))


def test_it_reads_all_layers_of_each_party_with_the_decoder_of_that_party():
    f1, wide = torch.tensor([[0.0, 2.0], [4.0, -2.0], [9.0, 9.0]]), torch.tensor([[-1.0], [1.0], [5.0]])
    embeddings = Embeddings({}, {"a": {"f1": f1, "wide": wide}, "b": {"f1": -f1, "wide": -wide}})
    attack = Fsha(rows=2)
    facts = embeddings, PeerDecoders({"a": decoder(), "b": decoder()})
    answer = attack.batch(view_of(attack.threat, *facts, ids=torch.tensor([5, 6, 7])))
    assert (answer.ids.tolist(), answer.layer) == ([5, 6], "f1")
    torch.testing.assert_close(answer.features["a"].numeric, torch.sigmoid(torch.tensor([[0.0, 1.0], [2.0, -1.0]])))
    torch.testing.assert_close(answer.features["b"].numeric, torch.sigmoid(torch.tensor([[0.0, -1.0], [-2.0, 1.0]])))
    assert answer.features["a"].categorical.tolist() == [[3], [7]]
    assert answer.features["b"].categorical.tolist() == [[7], [3]]


def test_it_has_no_answer_before_the_first_gradient_of_the_adversary():
    attack = Fsha()
    received = Embeddings({}, {"a": {"f1": torch.ones(2, 2)}})
    assert attack.batch(view_of(attack.threat, received, PeerDecoders({}), ids=torch.arange(2))) is None


def test_without_its_adversary_it_is_skipped_with_a_reason():
    theirs, other = (offered_with([kind()], Split().offers) for kind in (Cheat, MaliciousOptimizer))
    reason = "the decoder of adversary=fsha is not in this protocol for the label party"
    assert unmet_attacks({"fsha": Fsha()}, other, 10, cheating=["a"]) == {"fsha": reason}
    assert unmet_attacks({"fsha": Fsha()}, theirs, 10, cheating=["label"]) == {}
