"""The Ray Tune searcher of the arena: an agent's attempts, one trial each, its journal, and what they came to."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from automcu_ray.records.attempt import Attempt, Observation
from automcu_ray.records.events import AttemptMade, AttemptObserved
from automcu_ray.records.journal import Repository

METRIC = "score"
ENGINE_FAILURES = 3  # one after the other; then nothing more is tried

Play = Callable[[int, list[Observation], Path], Attempt]
Examine = Callable[[Observation, Path], Observation]


class AgentSearcher(Searcher):  # type: ignore[misc]
    """Hands out one artifact after the other; agent and judge work in a thread, so that Tune's loop turns.

    The journal is the truth: what it holds is neither played nor judged again, and an artifact that was submitted and
    not judged is judged from its folder.

    Args:
        play: plays one attempt: its number, the observations so far, the folder that keeps it.
        attempts: the budget T.
        repository: the journal.
        folder: keeps `iteration_t/` of each attempt.
        stopped: says that a signal has come, which Tune's loop does not look at while it waits for a trial.
        judge: is asked about an observation that is valid, and the folder that keeps its attempt; None: nobody is.
    """

    def __init__(
        self,
        play: Play,
        *,
        attempts: int,
        repository: Repository,
        folder: Path,
        stopped: Callable[[], bool] = lambda: False,
        judge: Examine | None = None,
    ) -> None:
        super().__init__(metric=METRIC, mode="max")
        self.play, self.attempts, self.repository, self.folder = play, attempts, repository, folder
        self.stopped, self.judge = stopped, judge
        self.gave_up = ""  # why nothing more will be tried, where the budget is not used up
        self._live: dict[str, int] = {}
        self._working: threading.Thread | None = None  # agent or judge, one at a time
        self._outcome: Attempt | Observation | BaseException | None = None

    @property
    def observations(self) -> list[Observation]:
        """What became of the attempts so far."""
        newest = {event.observation.attempt: event.observation for event in self.repository.all(AttemptObserved)}
        return list(newest.values())

    @property
    def made(self) -> list[Attempt]:
        """What the agent did in them."""
        return [event.attempt for event in self.repository.all(AttemptMade)]

    @property
    def exhausted(self) -> bool:
        """Whether all attempts are judged, or no more can be made."""
        return bool(self.gave_up) or (self._waiting() is None and len(self.made) >= self.attempts)

    def kept(self, number: int) -> Path:
        """Return the folder that keeps an attempt."""
        return self.folder / f"iteration_{number}"

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._working is not None and not self._working.is_alive():
            self._take_outcome()
        if self.exhausted or self.stopped():
            return str(Searcher.FINISHED)
        if self._live or self._working is not None:
            return None
        waiting = self._waiting()
        if waiting is None:
            number = len(self.made) + 1
            self._work(lambda: self.play(number, self.observations, self.kept(number)))
            return None
        self._live[trial_id] = waiting.number
        kept = self.kept(waiting.number)
        return {
            "attempt": waiting.number,
            "artifact": str(kept / "artifact"),
            "workdir": str(kept / f"work-{time.time_ns()}"),
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._live.pop(trial_id, None)
        if number is None:
            return
        if error or not result or "observation" not in result:
            found = Observation(attempt=number, infrastructure="the trial's worker died")
        else:
            found = Observation.model_validate_json(result["observation"])  # text, for Tune flattens what is nested
        if self.judge is not None and found.valid:
            judge = self.judge
            self._work(lambda: judge(found, self.kept(number)))
        else:
            self._observed(found)

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text("")  # the journal has it all

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the journal has been read."""

    def _waiting(self) -> Attempt | None:
        """Return an attempt that is to be judged, for the first time or since the boards failed it."""
        judged = {one.attempt for one in self.observations if not one.infrastructure}
        return next((one for one in self.made if one.number not in judged and one.ended != "engine failed"), None)

    def _work(self, work: Callable[[], Attempt | Observation]) -> None:
        def run() -> None:
            try:
                self._outcome = work()
            except BaseException as error:  # it must cost the run's rest, not Tune's loop
                self._outcome = error

        self._working = threading.Thread(target=run, name="agent", daemon=True)
        self._working.start()

    def _take_outcome(self) -> None:
        self._working, outcome = None, self._outcome
        if isinstance(outcome, Observation):
            self._observed(outcome)
            return
        if not isinstance(outcome, Attempt):
            self.gave_up = f"the agent or its judge broke: {type(outcome).__name__}: {outcome}"[:300]
            return
        self.repository.append(AttemptMade(attempt=outcome))
        last = self.made[-ENGINE_FAILURES:]
        if len(last) == ENGINE_FAILURES and all(one.ended == "engine failed" for one in last):
            self.gave_up = f"the engine failed {ENGINE_FAILURES} times in a row"

    def _observed(self, found: Observation) -> None:
        self.repository.append(AttemptObserved(observation=found))
        if found.infrastructure:
            self.gave_up = f"attempt {found.attempt} could not be judged: {found.infrastructure}"

    def __getstate__(self) -> dict[str, Any]:
        without = dict.fromkeys(("play", "judge", "stopped", "_working", "_outcome"))
        return {**self.__dict__, **without}
