"""What a run's defenses promise and spend, as lines for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.results.runs import mappings


def privacy_lines(summary: Mapping[str, Any]) -> list[str]:
    """Guarantees about labels, then about embeddings, then the ledger of label differential privacy."""
    noises = summary.get("embedding_privacy", [])  # runs of older versions have none
    of_embeddings = {noise["defense"] for noise in noises}
    promises = {name: p for name, p in summary["guarantees"].items() if p is not None or name not in of_embeddings}
    refused = summary.get("claims_refused", {})
    lines = [_promise(defense, promise, refused.get(defense)) for defense, promise in promises.items()]
    lines += [_embedding_promise(noise) for noise in noises]
    return lines + (_ledger(summary["privacy"]) if summary.get("privacy") else [])


def _promise(defense: str, promise: Mapping[str, Any] | None, refused: str | None) -> str:
    if promise is None:
        return f"{defense} promises nothing" + (f" here: {refused}" if refused else "")
    of_one = (
        f"at most {promise['leak_auc_one_message']:.3f}, error at least {promise['error_one_message']:.1%} from one message "
        "about a row; "
    )
    if promise.get("bounds", "the leak") != "the leak":  # on one message the same
        of_one = ""
    return (
        f"{defense} promises: {promise['claim']}. Leak AUC {of_one}at most {promise['leak_auc_all_messages']:.3f}, error at "
        f"least {promise['error_all_messages']:.1%} from all {promise['messages']} of this run{_assumption(promise)}"
    )


def _assumption(promise: Mapping[str, Any]) -> str:
    """What the ceiling assumes, and what the messages of this run say to it."""
    if not promise.get("assumption"):
        return f". The ceiling is on {promise['bounds']}" if promise.get("bounds", "the leak") != "the leak" else ""
    tested = promise["tested"]
    if not tested:
        return f". It assumes that {promise['assumption']}, which was not tested"
    first, *others = [name for name in tested[0] if name not in ("party", "layer")]
    worst = max(tested, key=lambda one: one[first])
    figures = [f"{first.replace('_', ' ')} {worst[first]:.1f} standard deviations"]
    figures += [f"{name.replace('_', ' ')} {worst[name]:.1f}" for name in others if worst[name] is not None]
    answer = "it was not refused" if promise["assumption_holds"] else "IT DOES NOT HOLD, so nothing is promised"
    return (
        f". It assumes that {promise['assumption']}; tested on the messages of this run, {answer} "
        f"({', '.join(figures)}, at {worst['party']} {worst['layer']})"
    )


def _embedding_promise(noise: Mapping[str, Any]) -> str:
    """What noise on embeddings promises about them, from one message about a row and from all of them."""
    who = f"{noise['defense']} on {noise['party']} {noise['layer']} ({noise['mechanism']}, {noise['width']} numbers a row)"
    one, every = f"delta = {noise['delta']:g}", f"delta = {noise['delta_all']:g}"
    if noise["epsilon"] is None:
        line = f"{who} claims no differential privacy of embeddings: {noise['reason']}"
    else:
        line = (
            f"{who} promises differential privacy of a row's embedding for a given network, and nothing about what the "
            f"weights reveal: {_epsilon(noise['epsilon'])} at {one} for one message, {_epsilon(noise['epsilon_all'])} at "
            f"{every} for all {noise['messages']} about a row (two an epoch: training, train AUC)"
            + (f"; {noise['reason']}" if noise["reason"] else "")
        )
    if noise["exact"]:
        line += (
            f"; exact accounting of this noise: {_epsilon(noise['epsilon_exact'])} at {one} for one message, "
            f"{_epsilon(noise['epsilon_exact_all'])} at {every} for all {noise['messages']}"
        )
    return line + (f". It assumes {noise['assumes']}" if noise.get("assumes") else "")


def _epsilon(value: float | None) -> str:
    return "no eps" if value is None else f"eps = {value:.4g}"


def _ledger(privacy: Mapping[str, Any]) -> list[str]:
    """The privacy that the run spent, and the loss of it that its canaries prove."""
    lines = []
    at_delta = f"eps = {privacy['epsilon_at_delta']:.4g} at delta = {privacy['delta']:g}" if privacy["releases"] else ""
    if privacy["epsilon"] is not None:
        spent = " + ".join(
            f"{release['times']} x {release['epsilon']:g} ({release['defense']}, {release['mechanism']})"
            for release in privacy["releases"]
        )
        lines.append(f"label DP of the run: eps = {spent} = {privacy['epsilon']:.4g}; {at_delta}")
    mu = privacy.get("mu")  # runs of older versions have none
    if mu is not None:
        names = " and ".join(f"{release['defense']}, {release['mechanism']}" for release in privacy["releases"])
        lines.append(f"Gaussian label privacy of the run: mu = {mu:.4g} ({names}); {at_delta}")
    for figure, symbol in (("epsilon_low", "eps"), ("mu_low", "mu")):
        low = privacy.get(figure)
        if low is not None:
            proven = f"{symbol} at least {low:.4g}, by {privacy[f'{figure}_by']}" if low else f"no {symbol} is proven"
            lines.append(
                f"measured on {privacy['canaries']} canaries: {proven} "
                f"({privacy['confidence']:.1%} sure, {len(privacy['tried'])} readers tried)"
            )
    return lines + check_lines(privacy)


def check_lines(privacy: Mapping[str, Any]) -> list[str]:
    """Whether the promise was seen to be broken, and how weak it had to be for the canaries to show that.

    Nothing for runs of older versions, which don't record the power of the check, and where nothing is promised.
    """
    powers = mappings(privacy.get("power"))
    if not powers:
        return []
    promise = f"eps = {privacy['epsilon']:.4g}" if privacy.get("mu") is None else f"mu = {privacy['mu']:.4g}"
    if privacy.get("violated"):
        return [f"the promise of {promise} is violated"]
    needed = " and ".join(_needed(one) for one in powers)
    wanted = f"it takes about {needed} canaries to catch these with probability {powers[0]['wanted']:g}"
    if not privacy["canaries"]:
        return [f"the promise of {promise} was not checked: no canaries (audit.canaries)"]
    times = [f"{one['times']:g} times too weak with probability {probability(one)}" for one in powers]
    return [
        f"the promise of {promise} is not violated, which does not verify it ({privacy['canaries']:,} canaries would catch "
        f"a promise {', one '.join(times)}, at best; {wanted})"
    ]


def checked(privacy: Sequence[Mapping[str, Any]]) -> str | None:
    """Over a setting's runs: whether one of them saw the promise broken, and the least power of their checks."""
    powers = [mappings(one.get("power")) for one in privacy if one.get("power")]
    if any(one.get("violated") for one in privacy):
        return "violated"
    if not powers or not any(one.get("canaries") for one in privacy):
        return "not checked" if powers else None
    least = [min(same, key=lambda one: one["probability"]) for same in zip(*powers, strict=False)]
    return "not violated; caught: " + ", ".join(f"{one['times']:g} times too weak {probability(one)}" for one in least)


def probability(power: Mapping[str, Any]) -> str:
    """Of catching a promise that is too weak."""
    value = float(power["probability"])
    return "below 0.001" if value < 0.001 else "above 0.999" if value > 0.999 else f"{value:.2g}"


def _needed(power: Mapping[str, Any]) -> str:
    return "over a million" if power["canaries_needed"] is None else f"{power['canaries_needed']:,}"
