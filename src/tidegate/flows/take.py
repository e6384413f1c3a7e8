"""Deciding one request where that may need more than one answer: own shares, the store, and its outages.

    own shares      what this node's share of a rule with a reserve covers is taken there, first
    the store       everything else in one call; on a cluster in parts, one after another
    outage rules    what gave no answer is answered by each rule's own

All-or-nothing as ever: whatever was taken is given back when something later refuses, fails, or is
cancelled, by the rule that keeps the bound (docs/decisions/0011). So more than the limits allow is never
admitted, and a refusal that took something for a moment may cost others a refusal meanwhile. A give-back
that gets no answer stays charged, and so does a call that was cancelled while the store had it.

Of several parts the one that is likeliest to refuse is asked first. After a refusal the others are only
looked at, so that the decision has an outcome for each rule. They share one deadline, of which each may
use its part of what is left, so that a server that is silent leaves time for those that answer. Many
requests go the same way together: the first part of each in one call, the second parts in the next. What
the refused ones had taken goes back in one call as well, which may take a grace beyond the deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tidegate.core.compose import Adjustment
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.flows.port import Setting, end_of_turn_us, ends_us
from tidegate.flows.shares import Share

RESERVE, OUTAGE = "reserve", "outage"
"""What `Decision.source` says where the store was not needed, and where it gave no answer."""

GRACE = 5
"""Giving back ends within this part of a deadline, a fifth, beyond the one of the decision."""


async def decide(
    setting: Setting, charges: Sequence[Charge], *, take: bool = True
) -> tuple[list[Outcome], str]:
    """What each rule says of a request, and who decided. Raises StoreError, but never for an outage."""
    if not setting.outages.reserved and (len(charges) == 1 or not setting.port.splits):
        try:
            answers = await setting.port.decide(charges, setting.instant_us(), take=take)
        except StoreUnavailable:
            request = _Request(setting, charges, take)
            request.parts = [list(range(len(charges)))]
            request.unanswered(request.parts[0])
            return (await _conclude(setting, [request]))[0]
        return answers, setting.port.name
    request = _Request(setting, charges, take)
    (result,) = await _see_to(setting, [request], request.ask_store)
    return result


async def decide_many(
    setting: Setting, requests: Sequence[Sequence[Charge]]
) -> list[tuple[list[Outcome], str]]:
    """The same for many independent requests, which travel together and have one deadline together.

    Where a mistake (StoreError) answers one of them, all that was taken is given back and it is raised.
    """
    pending = [_Request(setting, charges, True) for charges in requests]
    return await _see_to(setting, pending, partial(_ask_together, setting, pending))


async def _see_to(
    setting: Setting, requests: Sequence[_Request], ask_store: Callable[[], Awaitable[None]]
) -> list[tuple[list[Outcome], str]]:
    """Decide these requests; where that ends in an error, all that was taken is given back."""
    try:
        for request in requests:
            request.begin()
        await ask_store()
        return await _conclude(setting, requests)
    except GeneratorExit:  # nothing may be awaited any more
        for request in requests:
            request.give_back_own()
        raise
    except BaseException:
        await _give_back(setting, requests)
        raise


async def _conclude(setting: Setting, requests: Sequence[_Request]) -> list[tuple[list[Outcome], str]]:
    """What the requests have come to; what was taken of those that are refused is given back."""
    mistake = await _give_back(setting, [request for request in requests if not request.judge()])
    if mistake is not None:
        raise mistake
    return [request.result() for request in requests]


async def _ask_together(setting: Setting, pending: Sequence[_Request]) -> None:
    """Ask the store for the first part of every request, then for the second of those that still pass, ...

    What is left of those that do not pass is looked at in the end, all at once.
    """
    port = setting.port
    rounds = max((len(request.parts) for request in pending), default=0)
    end_us = port.ticks_us() + port.deadline_us if rounds > 1 else None
    looks: list[tuple[_Request, list[int]]] = []
    for number in range(rounds):
        asked = [(request, request.parts[number]) for request in pending if number < len(request.parts)]
        looks += [(request, part) for request, part in asked if not request.passes]
        takes = [(request, part) for request, part in asked if request.passes]
        still_to_come = rounds - number + bool(looks or number < rounds - 1)
        if takes:
            await _ask_round(setting, takes, True, end_of_turn_us(port, end_us, still_to_come))
    if looks:
        await _ask_round(setting, looks, False, end_us)


async def _ask_round(
    setting: Setting, parts: Sequence[tuple[_Request, list[int]]], take: bool, until_us: int | None
) -> None:
    """Ask for these parts in one call. Raises a mistake, after the other answers have been noted."""
    requests = [request.charges_of(part) for request, part in parts]
    answers: Sequence[list[Outcome] | StoreError]
    try:
        answers = await setting.port.decide_many(requests, setting.instant_us(), take=take, until_us=until_us)
    except StoreUnavailable as error:
        answers = [error] * len(parts)
    mistake: StoreError | None = None
    for (request, part), answer in zip(parts, answers, strict=True):
        if isinstance(answer, StoreUnavailable):
            request.unanswered(part)
        elif isinstance(answer, StoreError):
            mistake = answer
        else:
            request.answered(part, answer)
    if mistake is not None:
        raise mistake


async def _give_back(setting: Setting, requests: Sequence[_Request]) -> StoreError | None:
    """Give back all that was taken for these requests; the mistake that the store made of it, if any."""
    for request in requests:
        request.give_back_own()
    if not any(request.taken for request in requests):
        return None
    return await setting.port.see_through(_give_back_parts(setting, requests))


async def _give_back_parts(setting: Setting, requests: Sequence[_Request]) -> StoreError | None:
    """Give back what the store took, of all the requests in one call."""
    port = setting.port
    until_us = port.ticks_us() + port.deadline_us // GRACE
    # First it is theirs no more, then it is asked: what may have come back is not given back again.
    charged = [outcome for request in requests for outcome in request.uncharge()]
    if charged:
        try:
            await port.adjust(list(map(_whole, charged)), setting.instant_us(), until_us=until_us)
        except StoreUnavailable:
            setting.outages.tally.refunds_lost += 1
        except StoreError as error:
            return error
    return None


class _Request:
    """One request on its way.

    `asked` are the charges as they are asked of the store: of a rule with a reserve, under the store's part
    of its limit. `parts` are the positions of those that the store is needed for, as it can decide them.
    """

    parts: list[list[int]]

    def __init__(self, setting: Setting, charges: Sequence[Charge], take: bool) -> None:
        self.setting = setting
        self.asked = list(charges)
        self.outcomes: list[Outcome | None] = [None] * len(charges)
        self._charges = charges
        self._take = take
        self.passes = take
        """Whether something is to be taken, and nothing has refused so far."""
        self.taken: list[Sequence[int]] = []
        """The parts that the store has charged, and that have not been given back."""
        self._own: dict[int, Outcome] = {}  # what a share said that was not enough
        self._index: dict[int, int] = {}  # the share's node, by position
        self._unanswered: list[int] = []

    def begin(self) -> None:
        """Take what this node's own shares cover, if anything is to be taken; the store is for the rest."""
        if self.setting.outages.reserved:
            self._spend_own()
        self.parts = self._parts([at for at, outcome in enumerate(self.outcomes) if outcome is None])

    def _spend_own(self) -> None:
        outages, shares = self.setting.outages, []
        for at, charge in enumerate(self._charges):
            reserved = outages.reserved.get(charge.rule)
            if reserved is None:
                continue
            split = reserved.split(charge.limit)
            self.asked[at] = charge._replace(limit=split.store)
            if reserved.index is not None:
                self._index[at] = reserved.index
                shares.append(Share(reserved.index, charge._replace(limit=split.process, share=True)))
        assert outages.shares is not None
        said = outages.shares.ask(shares, take=self._take)
        for at, outcome in zip(self._index, said, strict=True):
            if outcome is not None and outcome.allowed:
                self.outcomes[at] = outcome
            elif outcome is not None:
                self._own[at] = outcome

    def _parts(self, rest: list[int]) -> list[list[int]]:
        port = self.setting.port
        if len(rest) <= 1 or not port.splits:
            return [rest] if rest else []
        parts = [[rest[place] for place in part] for part in port.parts([self.asked[at] for at in rest])]
        if len(parts) > 1:
            likelihood = self.setting.outages.likelihood
            parts.sort(key=lambda part: -likelihood(self.charges_of(part)))
        return parts

    def charges_of(self, part: Sequence[int]) -> list[Charge]:
        """The charges at these positions, as the store is asked."""
        return [self.asked[at] for at in part]

    async def ask_store(self) -> None:
        """Ask the store for every part; all of them together within one deadline."""
        port, several = self.setting.port, len(self.parts) > 1
        for part, until_us in zip(self.parts, ends_us(port, len(self.parts)), strict=True):
            try:
                answers = await port.decide(
                    self.charges_of(part), self.setting.instant_us(), take=self.passes, until_us=until_us
                )
            except StoreUnavailable:
                self.unanswered(part)
                continue
            self.answered(part, answers)
            if several:
                self.setting.outages.note(answers)

    def answered(self, part: Sequence[int], answers: Sequence[Outcome]) -> None:
        """Note what the store said of a part."""
        for at, outcome in zip(part, answers, strict=True):
            self.outcomes[at] = outcome
        if _refused(answers):
            self.passes = False
        elif self.passes:
            self.taken.append(part)

    def unanswered(self, part: Sequence[int]) -> None:
        """Note that the store said nothing of a part."""
        self._unanswered.extend(part)
        if any(self.setting.outages.refuses(self.asked[at]) for at in part):
            self.passes = False

    def judge(self) -> bool:
        """Answer by outage rules where the store said nothing; whether what was taken may be kept."""
        self._by_outage_rules()
        return not (self._take and _refused(self._known()))

    def result(self) -> tuple[list[Outcome], str]:
        """An outcome for each charge, and who decided."""
        for at, own in self._own.items():
            outcome = self.outcomes[at]
            assert outcome is not None
            if not outcome.allowed and not outcome.outage and _frees_earlier(own, outcome):
                self.outcomes[at] = own
        return self._known(), self._source()

    def _source(self) -> str:
        """Who decided: the store, unless it was not needed or an enforced rule had to do without it."""
        if not self.parts:
            return RESERVE
        if any(outcome.outage and outcome.mode == "enforce" for outcome in self._known()):
            return OUTAGE
        return OUTAGE if len(self._unanswered) == sum(map(len, self.parts)) else self.setting.port.name

    def _by_outage_rules(self) -> None:
        outages, bounded = self.setting.outages, []
        for at in self._unanswered:
            bound = outages.bound(self._charges[at])
            if bound is None:
                self.outcomes[at] = outages.answer(self._charges[at], self._own.get(at))
            else:
                bounded.append((at, bound))
        if bounded:  # these last: together, and only if nothing else has refused
            said = outages.bounds().decide(
                [charge for _, charge in bounded], outages.now_us(), take=self.passes
            )
            for (at, _), outcome in zip(bounded, said, strict=True):
                self.outcomes[at] = outcome._replace(outage=True)

    def _known(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome is not None]

    def give_back_own(self) -> None:
        """Give back what this process has of it: own shares, and limits for outages."""
        outages = self.setting.outages
        for at, outcome in enumerate(self.outcomes):
            if outcome is None or not outcome.charged:
                continue
            if outcome.outage:
                outages.bounds().adjust([_whole(outcome)], outages.now_us())
            elif outcome.charge.share:
                assert outages.shares is not None
                outages.shares.adjust(self._index[at], _whole(outcome))
            else:
                continue
            self.outcomes[at] = _uncharged(outcome)

    def uncharge(self) -> list[Outcome]:
        """What the store has charged, which from now on counts as given back."""
        charged = []
        while self.taken:
            for at in self.taken.pop():
                outcome = self.outcomes[at]
                if outcome is not None and outcome.charged:
                    charged.append(outcome)
                    self.outcomes[at] = _uncharged(outcome)
        return charged


def _refused(outcomes: Sequence[Outcome]) -> bool:
    return any(not outcome.allowed and outcome.charge.mode == "enforce" for outcome in outcomes)


def _whole(outcome: Outcome) -> Adjustment:
    """All that was charged, to be given back as far as the bound allows."""
    return Adjustment(outcome.charge, outcome.receipt, -outcome.charge.cost * outcome.limit.law.grain)


def _uncharged(outcome: Outcome) -> Outcome:
    """The outcome as it would be had the cost not been taken."""
    law, units = outcome.limit.law, outcome.charge.cost * outcome.limit.law.grain
    _, state = law.give_back(outcome.state, outcome.receipt, units, own=0, full=False)
    return outcome._replace(charged=False, state=state)


def _frees_earlier(own: Outcome, other: Outcome) -> bool:
    own_us, other_us = own.retry_after_us, other.retry_after_us
    return own_us is not None and (other_us is None or own_us < other_us)
